//go:build linux

package workload

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestI14_SignalsReachNoOtherProcess: the number of one that was reaped may be another's. The twin is not reaped yet.
func TestI14_SignalsReachNoOtherProcess(t *testing.T) {
	t.Parallel()
	r := NewReaper(false)
	defer r.Close()
	for to, send := range map[string]func(*child){
		"a group":   func(c *child) { c.SignalGroup(syscall.SIGKILL) },
		"a process": func(c *child) { c.Signal(syscall.SIGKILL) },
	} {
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
			send(c)
			r.mu.Lock()
			delete(r.children, c.PID) // which other.Wait reaps
			r.mu.Unlock()
			_ = other.Process.Signal(syscall.SIGTERM) // which comes behind a SIGKILL
			_ = other.Wait()
			if ws, ok := other.ProcessState.Sys().(syscall.WaitStatus); !ok || ws.Signal() != want {
				t.Errorf("to %s: it ended with %v, want %v", to, other.ProcessState, want)
			}
		}
	}
}

// reaperTest is argv[0] of a process that reaps as PID 1 does.
const reaperTest = "msb-test-reaper"

// TestOrphansAreAllReaped, though one signal stands for several that have ended.
func TestOrphansAreAllReaped(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: self, Args: []string{reaperTest}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// reapAll has several children end while nothing can be reaped, and returns the exit code of its process.
func reapAll() int {
	const children = 5
	r := NewReaper(true)
	c, err := r.start(func() (last int, err error) {
		for range children {
			if last, err = syscall.ForkExec("/bin/sh", []string{"sh", "-c", "exit 3"}, nil); err != nil {
				return 0, err
			}
			if err := unix.Waitid(unix.P_PID, last, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
				return 0, err
			}
		}
		return last, nil
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	select {
	case <-c.Done():
	case <-time.After(10 * time.Second):
	}
	if c.Status().ExitStatus() != 3 {
		fmt.Println("status: ", c.Status())
		return 1
	}
	for begin := time.Now(); unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil) != unix.ECHILD; {
		if time.Since(begin) > 10*time.Second {
			fmt.Println("some are not reaped")
			return 1
		}
		time.Sleep(time.Millisecond)
	}
	return 0
}
