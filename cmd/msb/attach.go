package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/sandbox"
)

// attachFlags is the command line of `msb attach`.
type attachFlags struct {
	noStdin, sigProxy bool
	detachKeys        string
}

func newAttachCommand(ui *ui) *cobra.Command {
	var f attachFlags
	c := &cobra.Command{
		Use:   "attach [flags] NAME",
		Short: "Join the streams of the command that msb run -d, or run -it and the detach keys, left running",
		Long: `Shows what the command writes from now on, and passes standard input on if the
sandbox was run with -i, until the command has ended: its exit code is msb's. With
a terminal (run -dit), ctrl-p and then ctrl-q leave the command running and end msb.
The end of standard input leaves the command's open. Signals go to the command, unless
--sig-proxy=false: then they end msb alone. The output from before is in msb logs NAME.

` + exitHelp,
		Example: `  msb run -dit --name box -- sh
  msb attach box
  msb attach --no-stdin --sig-proxy=false web`,
		Args: named(cobra.ExactArgs(1), nameRemedy),
		RunE: func(c *cobra.Command, args []string) error {
			keys, err := parseDetachKeys(f.detachKeys)
			if err != nil {
				return &usageError{err: err, help: "msb attach --help"}
			}
			home, err := sandbox.OpenHome("")
			if err != nil {
				return err
			}
			return attachNamed(c.Context(), ui, home, args[0], &f, keys)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&f.noStdin, "no-stdin", false, "do not pass standard input on")
	fl.BoolVar(&f.sigProxy, "sig-proxy", true, "pass signals on to the command")
	fl.StringVar(&f.detachKeys, "detach-keys", "", detachKeysHelp)
	return c
}

func attachNamed(ctx context.Context, ui *ui, home *sandbox.Home, name string, f *attachFlags, keys []byte) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	sig := catchInterrupts(cancel)
	defer sig.stop()
	sb, err := home.Connect(ctx, name)
	if err != nil {
		return startError(ctx, err)
	}
	defer func() { _ = sb.Close() }() // ends this session, whose work is done
	j, err := sb.Job(sandbox.MainJob)
	if err != nil {
		return err
	}
	st, err := j.Status()
	if err != nil {
		return err
	}
	if f.sigProxy {
		sig.running.Store(true)
		go passSignals(ctx, ui, j, sig.guest)
	}
	o := sandbox.AttachOptions{Stdout: os.Stdout, Stderr: os.Stderr, Missing: missing(ui)}
	if st.Input && !f.noStdin {
		o.Stdin = os.Stdin
	}
	restore := func() {}
	if st.TTY {
		if restore, err = attachTerminal(ctx, j, &o, keys); err != nil {
			return err
		}
	}
	st, err = j.Attach(ctx, o)
	restore()
	return attachEnd(ctx, ui, name, st, err)
}

// noteLeft tells whoever typed the detach keys how to come back.
func noteLeft(ui *ui, name string) {
	ui.note("detached; %s runs on: `msb attach %s` joins its command again, `msb stop %s` ends it", name, name, name)
}

// attachEnd turns the end of an attachment into that of msb.
func attachEnd(ctx context.Context, ui *ui, name string, st sandbox.JobStatus, err error) error {
	switch {
	case errors.Is(err, errDetached):
		noteLeft(ui, name)
		return nil
	case errors.Is(err, syscall.EPIPE):
		return exitCode(exitSignalled(syscall.SIGPIPE)) // whoever read the output has what they wanted
	case errors.Is(err, sandbox.ErrJobEnded):
		return fmt.Errorf("%w; `msb logs %s` shows its output", err, name)
	case err != nil:
		return startError(ctx, err)
	case st.Code != 0:
		return exitCode(st.Code)
	}
	return nil
}

// attachTerminal puts the user's terminal into raw mode for the job, and keeps the job's terminal at its size.
func attachTerminal(ctx context.Context, j *sandbox.Job, o *sandbox.AttachOptions, keys []byte) (restore func(), err error) {
	var size sandbox.ExecOptions
	restore, err = makeTerminal(ctx, &size, o.Stdin != nil)
	if err != nil {
		return nil, err
	}
	if o.Stdin != nil {
		o.Stdin = &keyboard{from: o.Stdin, keys: keys}
	}
	if size.Resize != nil {
		go resizeJob(ctx, j, size.Size, size.Resize)
	}
	return restore, nil
}

// resizeJob gives a job's terminal the size of the user's, until ctx ends.
func resizeJob(ctx context.Context, j *sandbox.Job, now agentclient.Size, changes <-chan agentclient.Size) {
	for {
		_ = j.Resize(ctx, now) // of one that has ended, which the output tells
		select {
		case now = <-changes:
		case <-ctx.Done():
			return
		}
	}
}

// runMain runs a command as the sandbox's main job, as msb run -d does, and attaches to it from its beginning, so that one
// can attach again after the detach keys.
func runMain(ctx context.Context, ui *ui, sb *sandbox.Sandbox, o sandbox.ExecOptions) (agentclient.ExitStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	job := o
	job.Signals, job.Resize, job.JobInput = nil, nil, true
	job.Stdin, job.Stdout, job.Stderr = nil, nil, nil
	j, err := sb.StartJob(ctx, sandbox.MainJob, job)
	var not *sandbox.NotStartedError
	if errors.As(err, &not) {
		return not.Status, nil
	}
	if err != nil {
		return agentclient.ExitStatus{}, err
	}
	go passSignals(ctx, ui, j, o.Signals)
	go resizeJob(ctx, j, o.Size, o.Resize)
	st, err := j.Attach(ctx, sandbox.AttachOptions{All: true, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Missing: missing(ui)})
	if errors.Is(err, sandbox.ErrJobLost) { // the supervisor knows of a panic, no memory, a violation
		select {
		case <-sb.Done():
			err = cmp.Or(sb.Err(), err)
		case <-time.After(lastWord):
		}
	}
	return agentclient.ExitStatus{Code: st.Code, Signal: agentclient.Signal(st.Signal), TimedOut: st.TimedOut, OOMKilled: st.OOMKilled}, err
}

// lastWord is how long a sandbox that ended by itself may take to say why.
const lastWord = 10 * time.Second

// missing tells of output that could not be shown.
func missing(ui *ui) func(int64) {
	return func(n int64) {
		ui.note("%d bytes of output are missing here: they came faster than they were read, or the disk was full", n)
	}
}

// passSignals sends a job the user's signals.
func passSignals(ctx context.Context, ui *ui, j *sandbox.Job, signals <-chan agentclient.Signal) {
	for {
		select {
		case s := <-signals:
			if err := j.Kill(ctx, s); err != nil && ctx.Err() == nil && !errors.Is(err, sandbox.ErrJobEnded) {
				ui.note("signal %d did not reach the command: %v", s, err)
			}
		case <-ctx.Done():
			return
		}
	}
}
