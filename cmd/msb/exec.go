package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox"
)

// signalled is the cause of a sandbox that a signal to msb ended.
type signalled syscall.Signal

func (s signalled) Error() string { return syscall.Signal(s).String() }

// exitSignalled is what a shell reports of a command that a signal ended.
func exitSignalled(s syscall.Signal) int { return 128 + int(s) }

// interruptedCode is the exit code of a sandbox whose context a signal ended.
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
	// A reader that goes (`msb run … | head`) must not end msb in the middle of things: the write fails instead.
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

// execIn runs the command and returns the exit code that msb takes over.
func execIn(ctx context.Context, ui *ui, sb *sandbox.Sandbox, f *runFlags, argv []string, sig *interrupts) (int, error) {
	opts := execOptions(sb.Image().Config, f, argv)
	opts.Signals = sig.guest
	sig.running.Store(true)
	restore := func() {}
	if f.tty {
		var err error
		if restore, err = makeTerminal(ctx, &opts, f.stdin); err != nil {
			return 0, err
		}
	}
	execCtx, cancel := withTimeout(ctx, f.timeout)
	defer cancel()
	run := sb.Exec
	if f.tty && f.stdin && sb.Name() != "" && !f.temporary() { // others end with msb
		opts.Stdin = &keyboard{from: opts.Stdin, keys: f.keys}
		if !f.plain {
			run = func(ctx context.Context, o sandbox.ExecOptions) (agentclient.ExitStatus, error) {
				return runMain(ctx, ui, sb, o)
			}
		}
	}
	st, err := run(execCtx, opts)
	restore() // before anything is said: a line's end doesn't begin a line in raw mode
	if sb.Name() != "" || f.disk != "" {
		warnAtHostRoom(ui, sb)
	}
	switch {
	case ctx.Err() == nil && execCtx.Err() != nil:
		ui.warn("the command was ended after %s (--timeout); the guest did not end it by itself", f.timeout)
		return exitTimeout, nil
	case ctx.Err() != nil:
		return interruptedCode(ctx), nil
	case errors.Is(err, errDetached):
		return 0, err
	case errors.Is(err, syscall.EPIPE):
		return exitSignalled(syscall.SIGPIPE), nil // whoever read the output has what they wanted
	case err != nil:
		return 0, err
	case st.TimedOut:
		ui.warn("the command was ended after %s (--timeout)", f.timeout)
		return exitTimeout, nil
	case st.OOMKilled && st.Code == 0:
		ui.note("a process of the command was killed because the guest ran out of memory; the command itself succeeded")
	case st.OOMKilled:
		ui.warn("the command was killed because the guest ran out of memory; give it more with --memory")
		return exitGuestMemory, nil
	case st.StartError != agentclient.Started:
		ui.warn("%s", st.Message)
	case st.Code != 0:
		hintAtRoom(ctx, ui, sb, f)
	}
	return st.Code, nil
}

const (
	// fullRoot is how little room, in bytes, makes a root full.
	fullRoot = 1 << 20
	// statsWait bounds the question after a command that failed: a guest may not answer.
	statsWait = 2 * time.Second
)

// hintAtRoom says what helps if the command failed in a guest whose root is full.
func hintAtRoom(ctx context.Context, ui *ui, sb *sandbox.Sandbox, f *runFlags) {
	ctx, cancel := context.WithTimeout(ctx, statsWait)
	defer cancel()
	st, err := sb.Stats(ctx)
	if err != nil || st.RootTotalBytes <= 0 || st.RootAvailableBytes >= fullRoot {
		return
	}
	ui.note("%s", roomRemedy(st.RootTotalBytes, sb.Name() != "" || f.disk != ""))
}

// warnAtHostRoom says that this machine's disk is full, which a guest learns when it writes back at the earliest: the
// command may have succeeded.
func warnAtHostRoom(ui *ui, sb *sandbox.Sandbox) {
	if free, err := sb.HostRoom(); err == nil && free < sandbox.MinHostRoom {
		ui.warn("the disk with msb's state has %d KiB free: what the guest writes to its own fails or is lost; free some space there", free>>10)
	}
}

// roomRemedy is the sentence on a root of so many bytes that is full.
func roomRemedy(total int64, onDisk bool) string {
	if onDisk {
		return fmt.Sprintf("the guest's disk is full (%d MiB); make the sandbox with a larger one, such as --disk 20G", total>>20)
	}
	return fmt.Sprintf("the guest's root is full (%d MiB, half of its memory); --disk 10G puts what it writes on a disk, -m gives it more memory", total>>20)
}

// timeoutGrace is what the guest gets to keep --timeout by itself: it sends SIGTERM, then SIGKILL.
const timeoutGrace = 15 * time.Second

// withTimeout ends the wait for a guest that does not keep --timeout.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d+timeoutGrace)
}

// execOptions merges the image's configuration and the flags.
func execOptions(c image.Config, f *runFlags, argv []string) sandbox.ExecOptions {
	opts := sandbox.ExecOptions{
		Argv: argv, Env: f.environ(),
		Dir: first(f.workdir, c.WorkingDir), MakeDir: !f.plain || f.workdir == "", User: first(f.user, c.User),
		Timeout: f.timeout, TTY: f.tty, Rlimits: f.ulimits,
		Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if !f.plain {
		opts.Argv = commandOf(c, f.entrypoint, argv)
	}
	if f.stdin {
		opts.Stdin = os.Stdin
	}
	return opts
}

// commandOf is entrypoint and arguments, as in every container tool: what the user gives replaces Cmd, and an
// entrypoint of theirs the image's and its Cmd.
func commandOf(c image.Config, entrypoint string, argv []string) []string {
	if entrypoint != "" {
		return append([]string{entrypoint}, argv...)
	}
	if argv == nil {
		argv = c.Cmd
	}
	argv = append(c.Entrypoint[:len(c.Entrypoint):len(c.Entrypoint)], argv...)
	if len(argv) == 0 {
		argv = []string{"/bin/sh"}
	}
	return argv
}

// errNoTerminal stands against a shell that waits for ever: the end of what is no terminal means nothing to it.
// checkExec returns it.
var errNoTerminal = errors.New("-it needs a terminal on standard input, and there is none; leave out -t to pass standard input on")

// makeTerminal follows the size of the user's terminal and, where the guest gets its keys, puts it into
// raw mode, so that Ctrl-C is a key as well. Where it gets none, Ctrl-C stays msb's to pass on: in raw
// mode nobody would read it.
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
