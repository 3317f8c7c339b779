//go:build !vmtest

package sandbox

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI13_DataIsSyncedBeforeItsName: a loss of power right behind the step that gives a snapshot, a disk in another one's
// place or a state its name leaves it whole. What was written before that step has been synced by then. Not parallel: it
// forks.
func TestI13_DataIsSyncedBeforeItsName(t *testing.T) {
	h := newHome(t)
	dir, err := filepath.EvalSymlinks(h.Dir())
	must(t, err)
	f := &faults{home: filepath.Dir(dir)}
	must(t, aNamed(t, h, "a"))
	writeToken(t, h, "1")
	for _, one := range []struct {
		op   operation
		name string // of what is named at the end
	}{
		{operation{Verb: "snapshot", Name: "a", To: "s"}, "/names/s"},
		{operation{Verb: "restore", Name: "a", To: "s"}, "/a/" + state.UpperDisk},
		{operation{Verb: "setenv", Name: "a", Key: "X", To: "1"}, "/a/" + state.StoredFile},
	} {
		one.op.Home, one.op.Root = h.Dir(), t.TempDir()
		f.arm("", 0)
		done, why := f.do(t, one.op)
		steps, _, _ := f.disarm(t)
		if !done {
			t.Fatalf("%s: %s", one.op, why)
		}
		called := func(step string, names ...string) bool {
			_, call, _ := strings.Cut(step, ": ")
			call, _, _ = strings.Cut(call, " ")
			return slices.Contains(names, call)
		}
		named, synced := 0, true
		for _, step := range steps {
			switch {
			case called(step, "write", "pwrite64", "copy_file_range", "ftruncate", "fallocate"):
				synced = false
			case called(step, "fsync", "syncfs"):
				synced = true
			case called(step, "renameat", "renameat2") && strings.HasSuffix(step, one.name):
				named++
				if !synced {
					t.Errorf("%s: %s comes before the data is synced, of %q", one.op, step, steps)
				}
			}
		}
		if named == 0 {
			t.Errorf("%s: nothing gets a name with %q, of %q", one.op, one.name, steps)
		}
	}
}
