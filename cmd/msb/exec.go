package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox"
)

// execIn runs the command and returns its exit code, with which msb exits.
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
	restore() // before any message: in raw mode a line feed doesn't return to the line's beginning
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

// timeoutGrace is how long the guest may take to enforce --timeout itself: it sends SIGTERM, then SIGKILL.
const timeoutGrace = 15 * time.Second

// withTimeout ends the wait for a guest that doesn't enforce --timeout.
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
		Dir: cmp.Or(f.workdir, c.WorkingDir), MakeDir: !f.plain || f.workdir == "", User: cmp.Or(f.user, c.User),
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

// entrypoint is the value of --entrypoint. An empty one takes the image's away.
type entrypoint struct {
	program string
	given   bool
}

var _ pflag.Value = (*entrypoint)(nil)

// Set implements pflag.Value.
func (e *entrypoint) Set(program string) error {
	e.program, e.given = program, true
	return nil
}

// String implements pflag.Value.
func (e *entrypoint) String() string { return e.program }

// Type implements pflag.Value.
func (e *entrypoint) Type() string { return "string" }

// commandOf is entrypoint and arguments, as in every container tool: what the user gives replaces Cmd, and an
// entrypoint of theirs the image's and its Cmd, also if it is empty.
func commandOf(c image.Config, entry entrypoint, argv []string) []string {
	switch {
	case entry.program != "":
		argv = append([]string{entry.program}, argv...)
	case !entry.given:
		if argv == nil {
			argv = c.Cmd
		}
		argv = append(c.Entrypoint[:len(c.Entrypoint):len(c.Entrypoint)], argv...)
	}
	if len(argv) == 0 {
		argv = []string{"/bin/sh"}
	}
	return argv
}
