package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStreamsOthersMakeNonBlocking: who started msb may change what a standard stream is to all that share it, after msb
// began to wait for it: what comes later is read and written all the same.
func TestStreamsOthersMakeNonBlocking(t *testing.T) {
	t.Parallel()
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, []string{"MSB_HOME=" + t.TempDir()}, "mcp")
	cmd.Stdin, cmd.Stdout = inR, outW
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(inW, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewScanner(outR)
	if !answers.Scan() {
		t.Fatalf("no answer: %v", answers.Err())
	}
	for _, f := range []*os.File{inR, outW} { // the same descriptions as msb's
		if nonBlocking(t, f) {
			t.Error("msb left a standard stream non-blocking, which others that share it do not expect")
		}
		if err := syscall.SetNonblock(int(f.Fd()), true); err != nil {
			t.Fatal(err)
		}
	}
	_ = inR.Close()
	_ = outW.Close()
	const pings = 5000 // their answers are more than a pipe holds
	go func() {
		defer func() { _ = inW.Close() }()
		for id := range pings {
			if id == 1 {
				time.Sleep(20 * time.Millisecond) // so that msb finds its input empty
			}
			if _, err := fmt.Fprintf(inW, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`+"\n", id); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	time.Sleep(100 * time.Millisecond) // so that msb finds its output full
	n := 0
	for answers.Scan() {
		n++
	}
	if n != pings {
		t.Errorf("%d answers to %d pings", n, pings)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &errs)
	}
}

// nonBlocking reads the flag without Fd, which may change it.
func nonBlocking(t *testing.T, f *os.File) bool {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags int
	var ferr error
	if err := raw.Control(func(fd uintptr) { flags, ferr = unix.FcntlInt(fd, unix.F_GETFL, 0) }); err != nil || ferr != nil {
		t.Fatal(err, ferr)
	}
	return flags&unix.O_NONBLOCK != 0
}
