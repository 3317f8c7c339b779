//go:build !vmtest

package sandbox

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI18_KilledRestoresBringNoIdentity: a disk from before the sandbox had an identity of its own is another one's. A kill
// right behind its rename leaves it to the next start, with word that it is. The twin is a disk from after the first start.
// Not parallel: it forks.
func TestI18_KilledRestoresBringNoIdentity(t *testing.T) {
	h := newHome(t)
	dir, err := filepath.EvalSymlinks(h.Dir())
	must(t, err)
	f := &faults{home: filepath.Dir(dir)}
	must(t, aNamed(t, h, "a"))
	is := func(unborn bool, token string) { // a copy that has not been started, or one that has
		st, err := loadStored(h, "a")
		must(t, err)
		st.NewIdentity = unborn
		must(t, state.WriteJSON(namedPath(h, "a"), state.StoredFile, st))
		writeToken(t, h, token)
	}
	for name, unborn := range map[string]bool{"unborn": true, "own": false} {
		is(unborn, "1")
		_, err := h.Snapshots().Create(t.Context(), "a", SnapshotOptions{Name: name})
		must(t, err)
		restore := func(kind string, at int) (steps []string, hit, token string, renews bool) {
			t.Helper()
			is(false, "2")
			f.arm(kind, at)
			done, why := f.do(t, operation{Verb: "restore", Home: h.Dir(), Root: t.TempDir(), Name: "a", To: name})
			steps, hit, _ = f.disarm(t)
			if done == (hit != "") {
				t.Fatalf("%s at %q: done %v, %s", kind, hit, done, why)
			}
			st, err := loadStored(h, "a")
			must(t, err)
			token, err = (&machineTest{t: t}).tokenOf(h, "a")
			must(t, err)
			return steps, hit, token, st.NewIdentity
		}
		replaced := func(s string) bool {
			return strings.Contains(s, " renameat") && strings.HasSuffix(s, "/a/"+state.UpperDisk)
		}
		steps, _, token, renews := restore("", 0)
		behind := 2 + slices.IndexFunc(steps, replaced) // counted from 1
		if token != "1" || renews != unborn || behind == 1 {
			t.Fatalf("%s: restored, the disk has %q, its identity is renewed: %v, of %q", name, token, renews, steps)
		}
		const tries = 100 // the number of steps before it differs a little
		for at, n := behind, 1; ; n++ {
			steps, hit, token, renews := restore(killSelf, at)
			if token == "1" && renews != unborn {
				t.Fatalf("%s: killed at %q, the disk is the snapshot's, and its identity is renewed: %v", name, hit, renews)
			}
			i := slices.IndexFunc(steps, replaced)
			if i == at-2 && hit != "" && token == "1" {
				break
			}
			if n == tries {
				t.Fatalf("%s: %d kills, and none right behind the rename", name, n)
			}
			if i < 0 || i >= at-1 {
				at++
			} else {
				at--
			}
		}
	}
}
