//go:build !vmtest

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestSupervisorsRaiseTheirDescriptorLimit: a published port takes a descriptor for each connection, and shells start
// programs with a soft limit of 1024. Not parallel: it forks, and changes this process's limit.
func TestSupervisorsRaiseTheirDescriptorLimit(t *testing.T) {
	const low = 1024
	var before unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	if before.Max <= low {
		t.Skipf("the hard limit is %d", before.Max)
	}
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	must(t, Create(t.Context(), operation{Home: h.Dir(), Root: root, Name: "web"}.config()))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: low, Max: before.Max}))
	sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	must(t, err)
	must(t, sb.Close())
	var got unix.Rlimit
	must(t, unix.Prlimit(supervisorOf(t, h, "web"), unix.RLIMIT_NOFILE, nil, &got))
	if got.Max != before.Max || got.Cur < got.Max-1 { // Go's runtime raises it, on some systems to one less
		t.Errorf("the supervisor has %d of %d descriptors", got.Cur, got.Max)
	}
	must(t, h.Stop(t.Context(), "web"))
	must(t, h.Remove(t.Context(), "web"))
}

// supervisorOf is the process of a sandbox that runs.
func supervisorOf(t *testing.T, h *Home, name string) (pid int) {
	t.Helper()
	var r state.RunRecord
	must(t, state.ReadJSON(namedPath(h, name), state.InfoFile, &r))
	return r.Supervisor.PID
}

// TestI8_SupervisorsAreTheirOwnProcesses: one leaves no core dump, holds nothing open that its caller's caller left to it, and
// doesn't end by the signals of a terminal or of a pipe that are for others. SIGHUP ends it in order. Not parallel: it forks
// while a descriptor can be inherited.
func TestI8_SupervisorsAreTheirOwnProcesses(t *testing.T) {
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	must(t, Create(t.Context(), operation{Home: h.Dir(), Root: root, Name: "web"}.config()))
	foreign, err := os.Create(filepath.Join(root, "foreign"))
	must(t, err)
	stray, err := unix.FcntlInt(foreign.Fd(), unix.F_DUPFD, 100) // without close-on-exec
	must(t, err)
	sb, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir()})
	must(t, errors.Join(unix.Close(stray), foreign.Close(), err))
	must(t, sb.Close())
	pid := supervisorOf(t, h, "web")
	var core unix.Rlimit
	if must(t, unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &core)); core != (unix.Rlimit{}) {
		t.Errorf("it may leave a core dump: %+v", core)
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		if to, err := os.Readlink(file); err == nil && to == foreign.Name() {
			t.Errorf("it has %s open", to)
		}
	}
	over, err := h.WatchEnd("web")
	must(t, err)
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGPIPE} {
		must(t, unix.Kill(pid, sig))
	}
	again, err := h.Connect(t.Context(), "web")
	if err != nil {
		t.Fatalf("after SIGINT and SIGPIPE: %v", err)
	}
	must(t, again.Close())
	must(t, unix.Kill(pid, unix.SIGHUP))
	if err := over(t.Context()); err != nil {
		t.Errorf("ended by SIGHUP: %v", err)
	}
	must(t, h.Remove(t.Context(), "web"))
}
