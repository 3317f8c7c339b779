//go:build !vmtest

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// isStopped reports whether a process was stopped by a signal.
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "T")
}

// TestPausedSandboxesGoOnOrStop: with a real supervisor, and a process for a VMM.
func TestPausedSandboxesGoOnOrStop(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	root := t.TempDir()
	do := func(verb, key string) error {
		_, err := operation{Verb: verb, Home: h.Dir(), Name: "a", Key: key, Root: root}.do(t.Context(), h)
		return err
	}
	if err := do("create", ""); err != nil {
		t.Fatal(err)
	}
	if err := h.Pause(t.Context(), "a"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("one that is stopped is paused: %v", err)
	}
	for _, end := range []string{"resume", "stop"} {
		must(t, do("start", ""))
		must(t, do("append", end))
		must(t, h.Pause(t.Context(), "a"))
		var r state.RunRecord
		must(t, state.ReadJSON(namedPath(h, "a"), state.InfoFile, &r))
		must(t, h.Pause(t.Context(), "a"))
		st, err := h.Inspect("a")
		must(t, err)
		if !st.Paused {
			t.Errorf("paused it is %+v", st)
		}
		await(t, "its machine stands still", func() bool { return isStopped(t, r.VMM.PID) }) // a signal takes its time
		if err := do("append", "x"); !errors.Is(err, ErrPaused) {
			t.Errorf("a command of one that is paused: %v", err)
		}
		if _, err := h.Usage(t.Context(), "a"); err != nil {
			t.Errorf("its figures: %v", err)
		}
		switch end {
		case "resume":
			must(t, h.Resume(t.Context(), "a"))
			must(t, do("append", "y"))
			if st, err := h.Inspect("a"); err != nil || st.Paused || isStopped(t, r.VMM.PID) {
				t.Errorf("resumed it is %+v, %v", st, err)
			}
			must(t, do("stop", ""))
		case "stop":
			must(t, do("stop", ""))
		}
	}
	st, err := h.Inspect("a")
	must(t, err)
	log, err := os.ReadFile(st.Audit)
	if n := strings.Count(string(log), `"`+string(audit.SandboxPause)+`"`); n != 2 || err != nil || strings.Count(string(log), `"`+string(audit.SandboxResume)+`"`) != 1 {
		t.Errorf("%v, %d pauses in the audit log: %s", err, n, log)
	}
}
