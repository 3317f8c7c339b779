package main

import (
	"context"
	"errors"
	"os"

	"github.com/msb-project/msb/image/progressbar"
	"github.com/msb-project/msb/sandbox"
)

// startForeground is `msb start --foreground`: it ends with the sandbox's run, and a signal ends both. argv, if not empty,
// becomes the sandbox's main job, with the image's entrypoint as for msb run -d.
func startForeground(ctx context.Context, ui *ui, name string, quiet, trust bool, argv []string) error {
	ui.quiet = quiet
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer catchInterrupts(cancel).stop()
	home, err := sandbox.OpenHome("")
	if err != nil {
		return err
	}
	var sb *sandbox.Sandbox
	err = approved(ctx, ui, func() (err error) {
		sb, err = sandbox.StartNamed(ctx, name, sandbox.StartOptions{
			Progress: progressbar.New(os.Stderr, progressMode(quiet)), Trust: trust,
			Notice: func(why string) { ui.note("%s", why) },
		})
		return err
	})
	if errors.Is(err, sandbox.ErrRunning) {
		ui.note("%s runs already, and is waited for", name)
		sb, err = home.Connect(ctx, name)
	}
	if err != nil {
		return startError(ctx, err)
	}
	wait, err := home.WatchEnd(name) // before it is said to run: whoever reads that may stop it
	if err == nil && len(argv) > 0 {
		err = startMain(ctx, ui, sb, argv)
	}
	if err = errors.Join(err, started(ui, sb), sb.Close()); err == nil { // a session would count as use
		err = wait(ctx)
	}
	if kind := sandbox.KindOf(err); kind == sandbox.KindIdle || kind == sandbox.KindLifetime {
		ui.note("%v", err) // as it was made to
		err = nil
	}
	if ctx.Err() == nil && err == nil {
		return nil
	}
	stopped := home.Stop(context.WithoutCancel(ctx), name)
	if errors.Is(stopped, sandbox.ErrNotRunning) || errors.Is(stopped, sandbox.ErrNoSandbox) {
		stopped = nil
	}
	if ctx.Err() != nil { // which is how it is stopped
		return stopped
	}
	return errors.Join(err, stopped)
}

// startMain makes a command the sandbox's main job, in place of one that has ended. It leaves a running one alone.
func startMain(ctx context.Context, ui *ui, sb *sandbox.Sandbox, argv []string) error {
	old, err := sb.Job(sandbox.MainJob)
	if err == nil {
		err = old.Remove(ctx)
	}
	switch {
	case errors.Is(err, sandbox.ErrJobRunning):
		return nil
	case err != nil && !errors.Is(err, sandbox.ErrNoJob):
		return err
	}
	_, err = startJob(ctx, ui, sb, sandbox.MainJob, execOptions(sb.Image().Config, &runFlags{}, argv))
	return err
}
