package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestI14_ASignalGoesToTheProcessOfTheRecordOnly: a process that has the pid of a record by now, and is the supervisor
// of another sandbox, gets none. The twin is the process of the record.
func TestI14_ASignalGoesToTheProcessOfTheRecordOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, unix.Mkfifo(filepath.Join(dir, Verb), 0o600))
	cmd := exec.Command("cat", Verb) // waits for who writes; its command line is a supervisor's
	cmd.Dir = dir
	must(t, cmd.Start())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill(); <-ended }()
	start, over := processStart(cmd.Process.Pid)
	if over || start == "" {
		t.Fatalf("%q, over %t", start, over)
	}
	if err := (processID{PID: cmd.Process.Pid, Start: start + "1"}).end(t.Context(), time.Minute); !errors.Is(err, errForeign) {
		t.Errorf("%v, want errForeign", err)
	}
	if err := cmd.Process.Signal(unix.Signal(0)); errors.Is(err, os.ErrProcessDone) {
		t.Error("it was ended")
	}
	if err := (processID{PID: cmd.Process.Pid, Start: start}).end(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}
