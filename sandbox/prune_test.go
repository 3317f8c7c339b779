package sandbox

import (
	"os"
	"path/filepath"
	"testing"

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
