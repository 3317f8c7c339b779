package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
)

// signalled is the cause of a sandbox that a signal to msb ended.
type signalled syscall.Signal

func (s signalled) Error() string { return syscall.Signal(s).String() }

// exitSignalled is what a shell reports of a command that a signal ended.
func exitSignalled(s syscall.Signal) int { return 128 + int(s) }

// interruptedCode is the exit code of a run whose context a signal ended.
func interruptedCode(ctx context.Context) int {
	var s signalled
	if errors.As(context.Cause(ctx), &s) {
		return exitSignalled(syscall.Signal(s))
	}
	return exitSignalled(syscall.SIGINT)
}

// interrupts passes the user's signals on to the guest. A second Ctrl-C or SIGTERM, or any before there is a
// guest, ends the sandbox.
type interrupts struct {
	guest   chan agentclient.Signal
	running atomic.Bool
	ch      chan os.Signal
}

func catchInterrupts(kill context.CancelCauseFunc) *interrupts {
	in := &interrupts{guest: make(chan agentclient.Signal, 4), ch: make(chan os.Signal, 4)}
	signal.Notify(in.ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	// A reader that ends (`msb run … | head`) must not kill msb before it has cleaned up: the write fails instead.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		asked := map[syscall.Signal]bool{}
		for s := range in.ch {
			n, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if !in.running.Load() || asked[n] {
				kill(signalled(n))
				continue
			}
			asked[n] = n == syscall.SIGINT || n == syscall.SIGTERM
			select {
			case in.guest <- agentclient.Signal(n):
			default: // the guest takes none: the next Ctrl-C kills
			}
		}
	}()
	return in
}

func (in *interrupts) stop() {
	signal.Stop(in.ch)
	close(in.ch)
}
