package sandbox

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI14_OnlyLeavesLaterSandboxesAlone: a handle of a name and a creation time does nothing to a later sandbox of the
// name. Without the time the name alone counts.
func TestI14_OnlyLeavesLaterSandboxesAlone(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	first, err := h.Inspect("web")
	must(t, err)
	must(t, h.Only(first.Created).Remove(t.Context(), "web"))
	must(t, aNamed(t, h, "web"))
	second, err := h.Inspect("web")
	must(t, err)
	if second.Created.Equal(first.Created) {
		t.Fatal("both were made at the same moment")
	}
	calls := map[string]func(*Home) error{
		"Inspect":     func(h *Home) error { _, err := h.Inspect("web"); return err },
		"Env":         func(h *Home) error { _, err := h.Env("web"); return err },
		"Console":     func(h *Home) error { _, err := h.Console("web"); return err },
		"Policy":      func(h *Home) error { _, err := h.Policy("web"); return err },
		"Jobs":        func(h *Home) error { _, err := h.Jobs("web"); return err },
		"Job":         func(h *Home) error { _, err := h.Job("web", "x"); return err },
		"Denied":      func(h *Home) error { _, err := h.Denied("web"); return err },
		"WatchDenied": func(h *Home) error { _, err := h.WatchDenied("web"); return err },
		"SetEnv":      func(h *Home) error { return h.SetEnv(t.Context(), "web", "A=b") },
		"UnsetEnv":    func(h *Home) error { return h.UnsetEnv(t.Context(), "web", "A") },
		"Reset":       func(h *Home) error { return h.Reset(t.Context(), "web") },
		"Rename":      func(h *Home) error { return h.Rename(t.Context(), "web", "other") },
		"Remove":      func(h *Home) error { return h.Remove(t.Context(), "web") },
		"StartNamed": func(h *Home) error {
			_, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir(), Program: "/nosuch", Created: h.made})
			return err
		},
	}
	before, err := os.ReadFile(namedPath(h, "web", state.StoredFile))
	must(t, err)
	for name, call := range calls {
		if err := call(h.Only(first.Created)); !errors.Is(err, ErrNoSandbox) {
			t.Errorf("%s of another sandbox: %v, want ErrNoSandbox", name, err)
		}
	}
	if after, err := os.ReadFile(namedPath(h, "web", state.StoredFile)); err != nil || string(after) != string(before) {
		t.Errorf("the other sandbox was changed: %s, %v", after, err)
	}
	for _, name := range []string{"Inspect", "SetEnv", "Reset", "Remove"} {
		if err := calls[name](h.Only(second.Created)); err != nil {
			t.Errorf("%s of the sandbox itself: %v", name, err)
		}
	}
}

// TestI14_OnlyReachesNoLaterRun has another sandbox run under the name: neither Connect nor Stop reaches it, with its socket
// and without.
func TestI14_OnlyReachesNoLaterRun(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	st, err := h.Inspect("web")
	must(t, err)
	run, err := lockNamed(h, "web")
	must(t, err)
	defer func() { _ = run.lock.Close() }()
	l, err := state.ListenControl(run.dir)
	must(t, err)
	defer func() { _ = l.Close() }()
	self := state.RunRecord{Started: time.Now(), Supervisor: state.Identify(os.Getpid())}
	must(t, state.WriteJSON(run.dir, state.InfoFile, self)) // whoever takes it for its own ends this process
	other := h.Only(st.Created.Add(-time.Hour))
	for _, socket := range []bool{true, false} {
		if !socket {
			must(t, l.Close())
			must(t, state.UnlessGone(os.Remove(namedPath(h, "web", state.ControlSock))))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := other.Stop(ctx, "web"); !errors.Is(err, ErrNoSandbox) {
			t.Errorf("Stop, with a socket %v: %v, want ErrNoSandbox", socket, err)
		}
		if _, err := other.Connect(ctx, "web"); !errors.Is(err, ErrNoSandbox) {
			t.Errorf("Connect, with a socket %v: %v, want ErrNoSandbox", socket, err)
		}
		cancel()
	}
}
