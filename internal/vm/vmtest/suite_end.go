//go:build linux

package vmtest

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// HowAMachineEnds ends machines from inside and reads what Wait says.
func (s *Suite) HowAMachineEnds(t *testing.T) {
	t.Helper()
	tests := []struct {
		name, tell string
		memoryMiB  int
		want       error
		inText     string
	}{
		{name: "orderly reboot", tell: "reboot"},
		// libkrunfw's kernel reboots when its first process ends, with any code.
		{name: "first process exits", tell: "exit"},
		{name: "out of memory", tell: "hog", memoryMiB: 128, want: vm.ErrGuestOutOfMemory, inText: "Kernel panic"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			spec := s.spec(t)
			if tt.memoryMiB > 0 {
				spec.MemoryMiB = tt.memoryMiB
			}
			g := Boot(t, s.Backend, spec)
			g.tell(t, tt.tell)
			err := g.Wait(t.Context())
			if !errors.Is(err, tt.want) || (tt.want == nil && err != nil) {
				t.Fatalf("wait: %v, want %v", err, tt.want)
			}
			if tt.inText != "" && !strings.Contains(err.Error(), tt.inText) {
				t.Errorf("the error lacks the console's %q:\n%v", tt.inText, err)
			}
			select {
			case <-g.Done():
			default:
				t.Error("Done is open after Wait")
			}
			// What arrived before the end may still be there; then it is EOF.
			if _, err := io.Copy(io.Discard, g.Agent()); err != nil {
				t.Errorf("read the agent's port afterwards: %v, want EOF", err)
			}
			if err := g.Kill(); err != nil {
				t.Errorf("kill afterwards: %v", err)
			}
		})
	}
}

// GuestKernelPanicComesWithTheConsolesTail boots a first process that is not
// there.
func (s *Suite) GuestKernelPanicComesWithTheConsolesTail(t *testing.T) {
	t.Helper()
	spec := s.spec(t)
	spec.Cmdline = []string{"init=/nothing-there"}
	m, err := s.Backend.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	err = m.Wait(t.Context())
	if !errors.Is(err, vm.ErrGuestPanic) || errors.Is(err, vm.ErrGuestOutOfMemory) {
		t.Fatalf("wait: %v, want ErrGuestPanic", err)
	}
	if want := "Requested init /nothing-there failed"; !strings.Contains(err.Error(), want) {
		t.Errorf("the error lacks the console's %q:\n%v", want, err)
	}
}

// KillEndsTheProcessAndLeavesNoZombie kills a machine.
func (s *Suite) KillEndsTheProcessAndLeavesNoZombie(t *testing.T) {
	t.Helper()
	g := Boot(t, s.Backend, s.spec(t))
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(t.Context()); !errors.Is(err, vm.ErrKilled) {
		t.Errorf("wait: %v, want ErrKilled", err)
	}
	if err := unix.Kill(g.PID(), 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("process %d is still there: %v", g.PID(), err)
	}
}

// KilledByAnotherIsReported kills a machine's process directly.
func (s *Suite) KilledByAnotherIsReported(t *testing.T) {
	t.Helper()
	g := Boot(t, s.Backend, s.spec(t))
	if err := unix.Kill(g.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(t.Context()); !errors.Is(err, vm.ErrKilled) || !strings.Contains(err.Error(), "someone else") {
		t.Errorf("wait: %v, want ErrKilled by someone else", err)
	}
}

// GuestHasAConsoleAndAClock prints a line to the kernel's own console: without
// one a panic leaves no text. It also checks the clock source.
func (s *Suite) GuestHasAConsoleAndAClock(t *testing.T) {
	t.Helper()
	g := Boot(t, s.Backend, s.spec(t))
	checkClockSource(t, g)
	if got := g.Ask(t, "console 1"); got != "printed" {
		t.Fatalf("console answered %q", got)
	}
	for deadline := time.Now().Add(time.Minute); !strings.Contains(g.ConsoleTail(1000), "line 00000"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("console tail is %q", g.ConsoleTail(1000))
		}
	}
}

// ConsoleLogIsBounded prints more to the console than both log files may hold.
func (s *Suite) ConsoleLogIsBounded(t *testing.T) {
	t.Helper()
	spec := s.spec(t)
	g := Boot(t, s.Backend, spec)
	const lines = 60_000 // of 64 bytes: more than both files together
	if got := g.Ask(t, "console %d", lines); got != "printed" {
		t.Fatalf("console answered %q", got)
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{spec.ConsoleLog, spec.ConsoleLog + ".1"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > runner.ConsoleLogMax {
			t.Errorf("%s has %d bytes, want at most %d", path, info.Size(), runner.ConsoleLogMax)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", path, info.Mode())
		}
	}
	if tail := g.ConsoleTail(1000); len(tail) != 1000 || !strings.Contains(tail, "line 00000") {
		t.Errorf("console tail is %q", tail)
	}
}
