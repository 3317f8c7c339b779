package state

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestI14_SignalsReachTheRecordedProcess: a process that has the pid of a record by now, and is the supervisor
// of another sandbox, gets none. The twin is the process of the record.
func TestI14_SignalsReachTheRecordedProcess(t *testing.T) {
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
	if err := (ProcessID{PID: cmd.Process.Pid, Start: start + "1"}).End(t.Context(), time.Minute); !errors.Is(err, ErrForeign) {
		t.Errorf("%v, want errForeign", err)
	}
	if err := cmd.Process.Signal(unix.Signal(0)); errors.Is(err, os.ErrProcessDone) {
		t.Error("it was ended")
	}
	if err := (ProcessID{PID: cmd.Process.Pid, Start: start}).End(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

// TestEndsOfEndedProcesses: one that nobody has waited for yet is nobody else's.
func TestEndsOfEndedProcesses(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("true")
	must(t, cmd.Start())
	p := Identify(cmd.Process.Pid)
	must(t, p.Gone(time.Minute))
	must(t, p.End(t.Context(), time.Minute))
	must(t, cmd.Wait())
	must(t, p.End(t.Context(), time.Minute))
}

// TestProcessesEndWithTheirLastThread: the first one of a VMM may end before those that write to its disk.
func TestProcessesEndWithTheirLastThread(t *testing.T) {
	t.Parallel()
	for stat, want := range map[string]bool{
		"7 (vmm) R 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0":       false,
		"7 (vmm) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0 4242 0":       false,
		"7 (vmm) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0":       true,
		"7 (vmm) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 0 0 4242 0":       true,
		"7 (vmm) X 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 0 0 4242 0":       true, // seen in the moment after a wait for it
		"7 (a) Z 1 \n) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0": false,
	} {
		if start, over := parseStat([]byte(stat)); start != "4242" || over != want {
			t.Errorf("%q: started at %q, over %t; want 4242, %t", stat, start, over, want)
		}
	}
	if start, over := parseStat([]byte("7 (vmm) R 1")); start != "" || !over {
		t.Errorf("half of one: %q, %t", start, over)
	}
}

// TestSocketsAreFoundAtPathsOfAnyLength: those that an address takes, with the NUL at its end, go as they are.
func TestSocketsAreFoundAtPathsOfAnyLength(t *testing.T) {
	t.Parallel()
	top, err := os.MkdirTemp("", "msb") // a short path
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	for length := maxSocketPath - 2; length <= maxSocketPath+3; length++ {
		name := strings.Repeat("d", length-len(top)-len("//")-len(ControlSock))
		dir := filepath.Join(top, name)
		must(t, os.Mkdir(dir, 0o700))
		l, err := ListenControl(dir)
		must(t, err)
		conn, err := DialControl(dir)
		if err != nil {
			t.Errorf("a path of %d bytes: %v", length, err)
		} else {
			must(t, conn.Close())
		}
		must(t, l.Close())
	}
}
