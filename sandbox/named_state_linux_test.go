package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// listenForeign makes a socket of this process, which is no supervisor.
func listenForeign(t *testing.T, path string) {
	t.Helper()
	// By the directory's descriptor: the path of a test's directory may be longer than an address of a socket.
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dir.Close() }()
	short := filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", short)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the descriptor is another's by then
	t.Cleanup(func() { _ = l.Close() })
}

// TestI14_NoSignalGoesToAProcessThatIsNoSupervisor: this process listens in the place of a control socket, or behind a
// link there. A signal would end the test.
func TestI14_NoSignalGoesToAProcessThatIsNoSupervisor(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{true, false} {
		h := newHome(t)
		if err := aNamed(t, h, "web"); err != nil {
			t.Fatal(err)
		}
		path := h.namedPath("web", controlSock)
		want := errForeign
		if linked {
			other := filepath.Join(t.TempDir(), "s")
			listenForeign(t, other)
			if err := os.Symlink(other, path); err != nil {
				t.Fatal(err)
			}
			want = ErrNotRunning
		} else {
			listenForeign(t, path)
		}
		if err := h.Stop(t.Context(), "web"); !errors.Is(err, want) {
			t.Errorf("linked %t: stop: %v, want %v", linked, err, want)
		}
		if s, err := h.Inspect("web"); err != nil || linked && s.Running {
			t.Errorf("linked %t: %+v, %v", linked, s, err)
		}
		if err := h.Remove(t.Context(), "web"); linked && err != nil {
			t.Errorf("a link is in the way of its removal: %v", err)
		}
	}
}
