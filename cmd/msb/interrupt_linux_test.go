package main

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestI12_SignalsEndWaitingCopies: a SIGTERM did nothing, and the copy waited on.
func TestI12_SignalsEndWaitingCopies(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := command(t, nil, "cp", "-", "web:/")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = r
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, err = w.Write([]byte("x"))            // less than a header
		for left := 1; err == nil && left > 0; { // once it is taken, the copy waits for more
			left, err = unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
			time.Sleep(time.Millisecond)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		_, _ = r.Close(), w.Close()
		if got := cmd.ProcessState.ExitCode(); got != exitSignalled(sig) {
			t.Errorf("%v: exit %d", sig, got)
		}
	}
}
