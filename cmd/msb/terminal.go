package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
	"golang.org/x/term"
)

// errNoTerminal refuses -t with an input that isn't a terminal: a shell would not notice its end, and wait for ever.
// checkExec returns it.
var errNoTerminal = errors.New("-it needs a terminal on standard input, and there is none; leave out -t to pass standard input on")

// makeTerminal follows the size of the user's terminal. If the guest gets its keys, the terminal is put into raw mode, so
// that Ctrl-C is a key too. If not, Ctrl-C remains a signal, which msb passes on: in raw mode nobody would read it.
func makeTerminal(ctx context.Context, opts *sandbox.ExecOptions, keys bool) (restore func(), err error) {
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		opts.Size = unknownSize
		return func() {}, nil
	}
	opts.Size = sizeOf(fd)
	resize := make(chan agentclient.Size, 1)
	opts.Resize = resize
	winch := make(chan os.Signal, 1)
	signal.Notify(winch, syscall.SIGWINCH)
	ctx, cancel := context.WithCancel(ctx)
	go followSize(ctx, winch, resize, fd)
	unfollow := func() {
		signal.Stop(winch)
		cancel()
	}
	if !keys {
		return unfollow, nil
	}
	state, err := term.MakeRaw(fd)
	if err != nil {
		unfollow()
		return nil, err
	}
	return func() {
		unfollow()
		_ = term.Restore(fd, state)
	}, nil
}

func followSize(ctx context.Context, winch <-chan os.Signal, resize chan<- agentclient.Size, fd int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-winch:
		}
		select {
		case resize <- sizeOf(fd):
		case <-ctx.Done():
			return
		}
	}
}

// unknownSize is of a terminal that nobody looks at.
var unknownSize = agentclient.Size{Rows: 24, Cols: 80}

func sizeOf(fd int) agentclient.Size {
	cols, rows, err := term.GetSize(fd)
	if err != nil {
		return unknownSize
	}
	return agentclient.Size{Rows: uint16(rows), Cols: uint16(cols)}
}
