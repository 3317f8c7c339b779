package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
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

// TestI14_ForeignFilesStayUntouched: a link in the place of a log was followed, and what it led to cut off; a pipe
// in the place of the state held msb ls for ever. The twin is the same sandbox without it. Not parallel: it forks.
func TestI14_ForeignFilesStayUntouched(t *testing.T) {
	h, root := newHome(t), t.TempDir()
	other := filepath.Join(root, "other")
	must(t, os.WriteFile(other, []byte("{}"), 0o600))
	start := func() error {
		_, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir(), Program: "/bin/false"})
		return err
	}
	must(t, Create(t.Context(), Config{Name: "web", Home: h.Dir(), Image: "dir:" + root, Disk: 64 << 20}))
	if err := start(); !errors.Is(err, ErrSupervisor) {
		t.Fatalf("%v, want ErrSupervisor", err)
	}
	kept, err := os.ReadFile(namedPath(h, "web", state.StoredFile))
	must(t, err)
	for _, file := range []string{state.StoredFile, state.ConsoleLog, state.SupervisorLog, state.AuditLog, state.AuditLog + ".1", state.CaFile} {
		for what, put := range map[string]func(string) error{
			"link": func(path string) error { return os.Symlink(other, path) },
			"pipe": func(path string) error { return unix.Mkfifo(path, 0o600) },
		} {
			path := namedPath(h, "web", file)
			must(t, state.UnlessGone(os.Remove(path)))
			must(t, put(path))
			if err := start(); !errors.Is(err, ErrState) {
				t.Errorf("a %s at %s: %v, want ErrState", what, file, err)
			}
			if all, err := h.List(); err != nil || len(all) != 1 || (all[0].Problem != "") != (file == state.StoredFile) {
				t.Errorf("a %s at %s: listed as %+v, %v", what, file, all, err)
			}
			must(t, os.Remove(path))
			if file == state.StoredFile {
				must(t, os.WriteFile(path, kept, 0o600))
			}
		}
	}
	for _, put := range []string{state.EndFile, state.InfoFile} {
		must(t, unix.Mkfifo(namedPath(h, "web", put), 0o600))
		if all, err := h.List(); err != nil || len(all) != 1 || all[0].Problem != "" {
			t.Errorf("a pipe at %s: %+v, %v", put, all, err)
		}
		must(t, os.Remove(namedPath(h, "web", put)))
	}
	if b, err := os.ReadFile(other); err != nil || string(b) != "{}" {
		t.Errorf("the other file holds %q, %v", b, err)
	}
}

// TestI14_OnlySupervisorsAreSignalled: this process listens in the place of a control socket, or behind a
// link there. A signal would end the test.
func TestI14_OnlySupervisorsAreSignalled(t *testing.T) {
	t.Parallel()
	for _, linked := range []bool{true, false} {
		h := newHome(t)
		if err := aNamed(t, h, "web"); err != nil {
			t.Fatal(err)
		}
		path := namedPath(h, "web", state.ControlSock)
		want := state.ErrForeign
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
