//go:build !vmtest

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestWatchEndReportsTheEnd: stopped, killed, and gone with its run. Not parallel: it forks.
func TestWatchEndReportsTheEnd(t *testing.T) {
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	if _, err := h.WatchEnd("web"); !errors.Is(err, ErrNoSandbox) {
		t.Errorf("without a sandbox: %v", err)
	}
	cfg := operation{Home: h.Dir(), Root: root, Name: "web"}.config()
	must(t, Create(t.Context(), cfg))
	if _, err := h.WatchEnd("web"); !errors.Is(err, ErrNotRunning) {
		t.Errorf("without a run: %v", err)
	}
	start := func() (ended chan error) {
		t.Helper()
		sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
		must(t, err)
		must(t, sb.Close())
		ended = make(chan error, 1)
		wait, err := h.WatchEnd("web")
		must(t, err)
		go func() { ended <- wait(t.Context()) }()
		return ended
	}
	ended := start()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	wait, err := h.WatchEnd("web")
	must(t, err)
	if err := wait(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	must(t, h.Stop(t.Context(), "web"))
	if err := <-ended; err != nil {
		t.Errorf("stopped: %v", err)
	}
	ended = start()
	var r state.RunRecord
	must(t, state.ReadJSON(namedPath(h, "web"), state.InfoFile, &r))
	must(t, syscall.Kill(r.Supervisor.PID, syscall.SIGKILL))
	if err := <-ended; !errors.Is(err, ErrSupervisor) {
		t.Errorf("killed: %v", err)
	}
	must(t, r.Supervisor.Gone(settleTime))
	must(t, h.Remove(t.Context(), "web"))
	cfg.AutoRemove = true
	sb, err := Start(t.Context(), cfg)
	must(t, err)
	must(t, sb.Close())
	wait, err = h.WatchEnd("web")
	must(t, err)
	must(t, h.Stop(t.Context(), "web"))
	if err := wait(t.Context()); err != nil {
		t.Errorf("gone with its run: %v", err)
	}
}

// TestWatchEndTakesNoOlderEnd: the run before ended well, and this one's supervisor was killed. The twin wrote its end down.
func TestWatchEndTakesNoOlderEnd(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	dir, now := namedPath(h, "web"), time.Now().UTC()
	must(t, state.WriteJSON(dir, state.InfoFile, state.RunRecord{Started: now.Add(-time.Minute)}))
	for age, want := range map[time.Duration]error{time.Hour: ErrSupervisor, 30 * time.Second: nil, 0: nil} {
		must(t, state.WriteJSON(dir, state.EndFile, End{Time: now.Add(-age).Truncate(time.Second)}))
		conn, far, err := state.SocketPair()
		must(t, err)
		must(t, far.Close())
		wait, err := watchEnd(h, "web", conn)
		must(t, err)
		if err := wait(t.Context()); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("an end that is %s old: %v, want %v", age, err, want)
		}
	}
}
