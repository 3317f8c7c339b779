package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// aGeneration makes caches without a machine.
func aGeneration(t *testing.T, h *Home, tools ...string) {
	t.Helper()
	_, err := h.Caches().renew(func(dir, _ string) (*state.StoredCaches, error) {
		kept := newStoredCaches()
		for _, tool := range tools {
			kept.Tools[tool] = state.StoredCache{Bytes: 1, Sandbox: "web", Committed: time.Unix(1, 0).UTC()}
		}
		return kept, os.WriteFile(filepath.Join(dir, state.CacheDisk), []byte("disk"), 0o600)
	})
	must(t, err)
}

func generations(t *testing.T, h *Home) []string {
	t.Helper()
	names, err := state.Generations(h.Dir())
	must(t, err)
	return names
}

func TestCachePathsFollowEachTool(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tool string
		env  []string
		want string
	}{
		{"pip", nil, "pip ~/.cache/pip"},
		{"pip", []string{"XDG_CACHE_HOME=/c"}, "pip /c/pip"},
		{"pip", []string{"PIP_CACHE_DIR=/a", "PIP_CACHE_DIR=/b"}, "pip /b"},
		{"pip", []string{"PIP_CACHE_DIR=relative", "HOME=/home/me"}, "pip /home/me/.cache/pip"},
		{"npm", []string{"npm_config_cache=/n"}, "npm /n"},
		{"go", nil, "go-build ~/.cache/go-build, go-mod ~/go/pkg/mod"},
		{"go", []string{"GOPATH=/go:/other"}, "go-build ~/.cache/go-build, go-mod /go/pkg/mod"},
		{"go", []string{"GOMODCACHE=/m", "GOCACHE=/b"}, "go-build /b, go-mod /m"},
		{"go", []string{"GOCACHE=off"}, "go-build ~/.cache/go-build, go-mod ~/go/pkg/mod"},
		{"cargo", []string{"CARGO_HOME=/usr/local/cargo"}, "cargo-git /usr/local/cargo/git, cargo-registry /usr/local/cargo/registry"},
		{"maven", nil, "maven ~/.m2/repository"},
		{"apt", nil, "apt /var/cache/apt/archives"},
		{"apk", nil, "apk /etc/apk/cache"},
	} {
		all, err := state.CachesOf(c.tool, c.env)
		must(t, err)
		var got []string
		for _, a := range all {
			got = append(got, a.Key+" "+a.Path)
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s with %q: %q, want %q", c.tool, c.env, got, c.want)
		}
	}
	if _, err := state.CachesOf("pipp", nil); !errors.Is(err, ErrCache) || !strings.Contains(err.Error(), "pip") {
		t.Error(err)
	}
}

func TestUnusableCachesAreRefused(t *testing.T) {
	t.Parallel()
	three := []Volume{{Name: "a", Guest: "/a"}, {Name: "b", Guest: "/b"}, {Name: "c", Guest: "/c"}}
	for name, c := range map[string]Config{
		"unknown":      {Caches: []string{"gem"}},
		"twice":        {Caches: []string{"pip", "pip"}},
		"a floor":      {Caches: []string{"pip"}, Floor: policies.Default()},
		"nine devices": {Caches: []string{"pip"}, Volumes: three},
	} {
		if err := c.fill(); KindOf(err) != KindSandbox && !errors.Is(err, ErrVolume) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]Config{"all": {Caches: CacheTools()}, "two volumes": {Caches: []string{"go"}, Volumes: three[:2]}, "three volumes": {Volumes: three}} {
		if err := c.fill(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCachesInUseStay has machines that hold what they started with while newer caches are made.
func TestCachesInUseStay(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if dir, lock, err := state.AttachCaches(h.Dir()); dir != "" || lock != nil || err != nil {
		t.Errorf("without caches: %q, %v", dir, err)
	}
	aGeneration(t, h, "pip")
	old, machine, err := state.AttachCaches(h.Dir())
	must(t, err)
	aGeneration(t, h, "pip", "npm")
	aGeneration(t, h, "pip", "npm", "go")
	if got := generations(t, h); !slices.Equal(got, []string{"g00000003", "g00000001"}) || filepath.Base(old) != "g00000001" {
		t.Errorf("%v, a machine has %s", got, old)
	}
	if pruned, err := h.Caches().Prune(true); len(pruned) > 0 || err != nil {
		t.Errorf("%v, %v", pruned, err)
	}
	must(t, machine.Close())
	if pruned, err := h.Caches().Prune(true); len(pruned) != 1 || pruned[0].Name != "g00000001" || pruned[0].Bytes == 0 || err != nil || len(generations(t, h)) != 2 {
		t.Errorf("a dry run: %v, %v", pruned, err)
	}
	if pruned, err := h.Caches().Prune(false); len(pruned) != 1 || pruned[0].Kind != PruneCache || err != nil || !slices.Equal(generations(t, h), []string{"g00000003"}) {
		t.Errorf("%v, %v, %v", pruned, err, generations(t, h))
	}
	all, err := h.Caches().List()
	must(t, err)
	if len(all) != 3 || all[0].Name != "go" || all[2].Name != "pip" || all[2].Sandbox != "web" {
		t.Errorf("%+v", all)
	}
}

func TestRemovedCachesAreEmpty(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, h.Caches().Remove(t.Context(), nil, StartOptions{}))
	if got := generations(t, h); len(got) != 0 {
		t.Errorf("%v was made of nothing", got)
	}
	aGeneration(t, h, "pip")
	must(t, h.Caches().Remove(t.Context(), []string{"npm"}, StartOptions{})) // has nothing
	if all, err := h.Caches().List(); len(all) != 1 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	must(t, h.Caches().Remove(t.Context(), []string{"pip"}, StartOptions{}))
	if all, err := h.Caches().List(); len(all) != 0 || err != nil {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := os.Lstat(state.CachesPath(h.Dir(), "g00000002", state.CacheDisk)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("empty caches have a disk: %v", err)
	}
	if err := h.Caches().Remove(t.Context(), []string{"gem"}, StartOptions{}); !errors.Is(err, ErrCache) {
		t.Error(err)
	}
}

func TestI13_KilledCommitsAreSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	aGeneration(t, h, "pip")
	lock, err := h.Caches().lockWork()
	must(t, err)
	work := state.CachesPath(h.Dir(), state.CacheWork)
	must(t, os.WriteFile(filepath.Join(work, state.CacheDisk), []byte("half"), 0o600))
	if _, err := h.Caches().lockWork(); !errors.Is(err, ErrCacheBusy) || KindOf(Fail(err)) != KindSandbox {
		t.Errorf("two at once: %v", err)
	}
	must(t, sweepCaches(h))
	if _, err := os.Stat(filepath.Join(work, state.CacheDisk)); err != nil {
		t.Errorf("one that is alive was swept: %v", err)
	}
	must(t, lock.Close()) // as a kill does
	again, err := h.Caches().lockWork()
	must(t, err)
	if _, err := os.Stat(filepath.Join(work, state.CacheDisk)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the next one has the half of the last: %v", err)
	}
	must(t, again.Close())
	must(t, sweepCaches(h))
	if _, err := os.Stat(work); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	failed := errors.New("failed")
	if _, err := h.Caches().renew(func(string, string) (*state.StoredCaches, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	if got := generations(t, h); !slices.Equal(got, []string{"g00000001"}) {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat(work); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that failed stays: %v", err)
	}
}

// TestI13_CommitsThatBeginAreNotSwept: the directory of one that has no lock yet stays, until it is clear that its command
// was killed.
func TestI13_CommitsThatBeginAreNotSwept(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	aGeneration(t, h, "pip")
	work := state.CachesPath(h.Dir(), state.CacheWork)
	must(t, os.Mkdir(work, 0o700))
	must(t, sweepCaches(h))
	if _, err := os.Stat(work); err != nil {
		t.Errorf("one that begins was swept: %v", err)
	}
	old := time.Now().Add(-2 * newRunGrace)
	must(t, os.Chtimes(work, old, old))
	must(t, sweepCaches(h))
	if _, err := os.Stat(work); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that was killed stays: %v", err)
	}
}

// TestI18_CachesAreCommittedOnly asks for commits of what a sandbox was not made with.
func TestI18_CachesAreCommittedOnly(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	commit := func(tools ...string) error {
		_, err := h.Caches().Commit(t.Context(), "web", tools, StartOptions{})
		return err
	}
	if err := commit(); !errors.Is(err, ErrCache) {
		t.Errorf("without --cache: %v", err)
	}
	st, err := loadStored(h, "web")
	must(t, err)
	st.Caches = []string{"pip"}
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	if err := commit("pip", "npm"); !errors.Is(err, ErrCache) || !strings.Contains(err.Error(), "npm") {
		t.Errorf("of another tool: %v", err)
	}
	if err := commit(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("of one that is stopped: %v", err)
	}
	if got := generations(t, h); len(got) != 0 {
		t.Errorf("%v was made", got)
	}
}

func TestI12_DamagedCachesAreReported(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	aGeneration(t, h, "pip")
	file := state.CachesPath(h.Dir(), "g00000001", state.CacheFile)
	for _, text := range []string{"{", `{"version": 2}`, ""} {
		must(t, os.WriteFile(file, []byte(text), 0o600))
		if _, err := h.Caches().List(); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "msb cache rm --all") {
			t.Errorf("%q: %v", text, err)
		}
	}
	must(t, h.Caches().Remove(context.Background(), nil, StartOptions{}))
	if all, err := h.Caches().List(); len(all) != 0 || err != nil {
		t.Errorf("after the remedy: %v, %v", all, err)
	}
}

// TestNewCachesAreGivenAtOnce: a machine gets the newest generation while the command that made it still holds its lock.
func TestNewCachesAreGivenAtOnce(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	lock, err := h.Caches().lockWork()
	must(t, err)
	work, first := state.CachesPath(h.Dir(), state.CacheWork), state.NextGeneration("")
	must(t, publishCaches(lock, work, state.CachesPath(h.Dir(), first)))
	dir, shared, err := state.AttachCaches(h.Dir())
	if err != nil || filepath.Base(dir) != first {
		t.Fatalf("%s, %v", dir, err)
	}
	must(t, errors.Join(shared.Close(), lock.Close()))
}

// TestCachesWithoutLockAreRemoved: a removal that was killed has taken the lock and left the directory.
func TestCachesWithoutLockAreRemoved(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	aGeneration(t, h, "pip")
	old := generations(t, h)[0]
	must(t, os.Remove(state.CachesPath(h.Dir(), old, state.LockFile)))
	aGeneration(t, h, "pip")
	if got := generations(t, h); len(got) != 1 || got[0] == old {
		t.Errorf("there are %q", got)
	}
}
