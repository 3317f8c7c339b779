package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestPruneRemovesWhatItNames: first all of it is told and nothing removed. A sandbox goes only if it was asked for and
// doesn't run.
func TestPruneRemovesWhatItNames(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const id = "sb-0123456789ab"
	must(t, os.Mkdir(keptDir(h, id), 0o700))
	must(t, os.WriteFile(filepath.Join(keptDir(h, id), state.ConsoleLog), make([]byte, 8<<10), 0o600))
	must(t, aNamed(t, h, "stopped"))
	must(t, aNamed(t, h, "runs"))
	run, err := lockNamed(h, "runs")
	must(t, err)
	defer func() { _ = run.lock.Close() }()
	l, err := state.ListenControl(run.dir)
	must(t, err)
	defer func() { _ = l.Close() }()
	names := func(all []Pruned) (names []string) {
		for _, p := range all {
			if p.Bytes == 0 && p.Kind == PruneKept {
				t.Errorf("%+v takes nothing", p)
			}
			names = append(names, string(p.Kind)+" "+p.Name)
		}
		return names
	}
	for _, step := range []struct {
		o    PruneOptions
		want int
		left int // sandboxes with a name
	}{
		{PruneOptions{DryRun: true, Stopped: true}, 2, 2},
		{PruneOptions{DryRun: true}, 1, 2},
		{PruneOptions{}, 1, 2},
		{PruneOptions{}, 0, 2},
		{PruneOptions{Stopped: true}, 1, 1},
	} {
		got, err := h.Prune(t.Context(), step.o)
		all, listErr := h.List()
		if err != nil || listErr != nil || len(got) != step.want || len(all) != step.left {
			t.Errorf("%+v: %q, %v, %v; want %d, and %d left of %d", step.o, names(got), err, listErr, step.want, step.left, len(all))
		}
	}
	if kept, err := h.KeptRuns().List(); err != nil || len(kept) != 0 {
		t.Errorf("%+v, %v", kept, err)
	}
}

// TestI13_PruneKeepsImagesOfWhatStays: a sandbox that can't be removed still needs its image. The twin is removed, and its
// image goes with it.
func TestI13_PruneKeepsImagesOfWhatStays(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{true, false} {
		h := newHome(t)
		store, err := Store(h)
		must(t, err)
		all, err := store.Load(t.Context(), anImageArchive(t, "tools:1", &image.Config{}), image.LoadOptions{})
		must(t, err)
		digest := all[0].Digest
		must(t, aNamed(t, h, "web"))
		st, err := loadStored(h, "web")
		must(t, err)
		st.ImageDigest = digest
		must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
		must(t, store.Remove("tools:1", digest)) // its name
		if stays {
			must(t, os.WriteFile(namedPath(h, "web", "mine"), nil, 0o600)) // which no removal takes along
		}
		pruned, err := h.Prune(t.Context(), PruneOptions{Stopped: true})
		if (err != nil) != stays {
			t.Errorf("stays %t: %v", stays, err)
		}
		left, err := store.Unneeded()
		must(t, err)
		if _, there := left[digest]; there != stays {
			t.Errorf("stays %t: its image is there: %t; pruned %+v", stays, there, pruned)
		}
	}
}

// TestI13_PruneSparesDamagedSandboxes: nobody can say whether one is still wanted. By name it goes.
func TestI13_PruneSparesDamagedSandboxes(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	must(t, os.WriteFile(namedPath(h, "web", state.StoredFile), []byte("{"), 0o600))
	if pruned, err := h.Prune(t.Context(), PruneOptions{Stopped: true}); err != nil || len(pruned) > 0 || !there(t, namedPath(h, "web")) {
		t.Errorf("pruned %+v, %v", pruned, err)
	}
	must(t, h.Remove(t.Context(), "web"))
}

// TestPrunedImagesAreNeededByNothing: that of a sandbox stays, and a dry run removes none.
func TestPrunedImagesAreNeededByNothing(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	store, err := Store(h)
	must(t, err)
	digest := map[string]string{}
	for ref, variable := range map[string]string{"needed:1": "A=1", "free:1": "A=2", "free:2": "A=3"} {
		all, err := store.Load(t.Context(), anImageArchive(t, ref, &image.Config{Env: []string{variable}}), image.LoadOptions{})
		must(t, err)
		digest[ref] = all[0].Digest
		must(t, store.Remove(ref, all[0].Digest)) // its name
	}
	must(t, aNamed(t, h, "web"))
	st, err := loadStored(h, "web")
	must(t, err)
	st.ImageDigest = digest["needed:1"]
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, st))
	want := []string{digest["free:1"], digest["free:2"]}
	slices.Sort(want)
	for _, dry := range []bool{true, true, false} {
		got, err := PruneImages(h, dry)
		if err != nil || len(got) != 2 || got[0].Name != want[0] || got[1].Name != want[1] || got[0].Kind != PruneImage || got[0].Bytes == 0 {
			t.Errorf("dry %t: %+v, %v; want %q", dry, got, err, want)
		}
	}
	if left, err := store.Unneeded(); err != nil || len(left) != 1 || left[digest["needed:1"]] == 0 {
		t.Errorf("left: %v, %v; want %s", left, err, digest["needed:1"])
	}
}

// TestI14_KeptRunsAreThoseOfMsb: they come in the order of their ends. What is not msb's is neither listed nor removed.
func TestI14_KeptRunsAreThoseOfMsb(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	const first, second, file = "sb-ba9876543210", "sb-0123456789ab", "sb-000000000000"
	for i, id := range []string{first, second, "notes"} {
		must(t, os.Mkdir(keptDir(h, id), 0o700))
		at := time.Unix(int64(i+1), 0)
		must(t, os.Chtimes(keptDir(h, id), at, at))
	}
	must(t, os.WriteFile(keptDir(h, file), nil, 0o600))
	kept, err := h.KeptRuns().List()
	if err != nil || len(kept) != 2 || kept[0].ID != first || kept[1].ID != second {
		t.Errorf("%+v, %v; want %s before %s", kept, err, first, second)
	}
	for _, id := range []string{"notes", "../" + state.NamedDir, "", "sb-ffffffffffff"} {
		if err := h.KeptRuns().Remove(id); !errors.Is(err, ErrNoSandbox) || KindOf(err) != KindSandbox {
			t.Errorf("%q: %v, want ErrNoSandbox", id, err)
		}
	}
	must(t, h.KeptRuns().Remove(first))
	if there(t, keptDir(h, first)) || !there(t, keptDir(h, "notes")) || !there(t, filepath.Join(h.Dir(), state.NamedDir)) {
		t.Error("another one was removed")
	}
}
