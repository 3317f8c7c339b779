package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
)

// TestI12_SecondSignalsEndTheSandbox: Ctrl-C and SIGTERM go to the command once, which may ignore them. The twins go to it each
// time; without a command any ends msb.
func TestI12_SecondSignalsEndTheSandbox(t *testing.T) { // how signals are handled is the process's
	defer signal.Reset(syscall.SIGPIPE)
	for _, c := range []struct {
		sig     syscall.Signal
		running bool
		passed  int // of three
	}{
		{syscall.SIGINT, true, 1}, {syscall.SIGTERM, true, 1}, {syscall.SIGHUP, true, 3}, {syscall.SIGQUIT, true, 3},
		{syscall.SIGINT, false, 0}, {syscall.SIGTERM, false, 0}, {syscall.SIGHUP, false, 0}, {syscall.SIGQUIT, false, 0},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		in := catchInterrupts(cancel)
		in.running.Store(c.running)
		passed := 0
		for range 3 {
			in.ch <- c.sig
			select {
			case got := <-in.guest:
				if got != agentclient.Signal(c.sig) {
					t.Errorf("%v: the command got %v", c.sig, got)
				}
				passed++
				continue
			case <-ctx.Done():
			}
			break
		}
		in.stop()
		var cause signalled
		if ended := errors.As(context.Cause(ctx), &cause); passed != c.passed || ended != (passed < 3) || ended && cause != signalled(c.sig) {
			t.Errorf("%v, running %t: the command got %d, and what ended msb is %v", c.sig, c.running, passed, context.Cause(ctx))
		}
		cancel(nil)
	}
}
