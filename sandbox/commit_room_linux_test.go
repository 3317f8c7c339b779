//go:build !vmtest

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/msb-project/msb/image"
)

// TestI11_EndlessCommitsAreRefused: what a guest says that its files take is more than this machine has, and nothing of it
// is kept. The twins, of guests that send little, are TestI18_CommitsOfSandboxesAreImages and
// TestI18_CommittedCachesAreOfLaterStarts. Not parallel: it forks.
func TestI11_EndlessCommitsAreRefused(t *testing.T) {
	h, dir := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	do := func(verb string) error {
		_, err := operation{Verb: verb, Home: h.Dir(), Root: dir, Name: "a", To: loadedImage, Key: "cache"}.do(t.Context(), h)
		return err
	}
	must(t, do("create"))
	writeToken(t, h, endlessToken)
	err := do("commit")
	store, storeErr := Store(h)
	must(t, storeErr)
	if _, missing := store.Resolve(t.Context(), loadedImage, image.Options{Pull: image.PullNever}); !errors.Is(err, syscall.ENOSPC) || !errors.Is(missing, image.ErrNotCached) {
		t.Errorf("the image of an endless root: %v; it is not there: %v", err, missing)
	}
	must(t, do("start"))
	err = do("cachecommit")
	must(t, do("stop"))
	if all, listErr := h.Caches().List(); !errors.Is(err, syscall.ENOSPC) || listErr != nil || len(all) != 0 {
		t.Errorf("an endless cache: %v; caches %+v, %v", err, all, listErr)
	}
	leavesNoRuns(t, h)
}
