package main

import (
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// TestI13_SupervisorsCloseStrayDescriptors: one that a caller's caller left open, a lock or the end of a pipe, was held for
// as long as the sandbox ran.
func TestI13_SupervisorsCloseStrayDescriptors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	planR, planW, err := os.Pipe() // open from start to end: the supervisor waits for its plan
	if err != nil {
		t.Fatal(err)
	}
	strayR, strayW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, sandbox.Verb)
	cmd.ExtraFiles = []*os.File{planR, null, null, null, strayW, strayW}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _, _ = strayW.Close(), planR.Close(), null.Close()
	if err := strayR.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(strayR); err != nil || len(b) != 0 {
		t.Errorf("the stray end of a pipe is open still: %v", err)
	}
	_ = planW.Close()
	_ = cmd.Wait() // its plan was none
}
