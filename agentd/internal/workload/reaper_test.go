//go:build linux

package workload

import (
	"os/exec"
	"syscall"
	"testing"
)

// TestI14_SignalsReachNoOtherProcess: the number of one that was reaped may be another's. The twin is not reaped yet.
func TestI14_SignalsReachNoOtherProcess(t *testing.T) {
	t.Parallel()
	r := NewReaper(false)
	defer r.Close()
	for _, want := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		other := exec.Command("sleep", "60")
		other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		c := &child{PID: other.Process.Pid, reaper: r, done: make(chan struct{})}
		if want == syscall.SIGKILL {
			r.mu.Lock()
			r.children[c.PID] = c
			r.mu.Unlock()
		}
		c.SignalGroup(syscall.SIGKILL)
		r.mu.Lock()
		delete(r.children, c.PID) // which other.Wait reaps
		r.mu.Unlock()
		_ = other.Process.Signal(syscall.SIGTERM) // which comes behind a SIGKILL
		_ = other.Wait()
		if ws, ok := other.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != want {
			t.Errorf("it ended with %v, want %v", other.ProcessState, want)
		}
	}
}
