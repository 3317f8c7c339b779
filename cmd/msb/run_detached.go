package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/sandbox"
)

// runDetached is `msb run --detach`. It removes a sandbox that doesn't start, or whose command doesn't.
func runDetached(ctx context.Context, ui *ui, f *runFlags, cfg sandbox.Config, argv []string) error {
	var sb *sandbox.Sandbox
	if err := approved(ctx, ui, func() (err error) { sb, err = sandbox.Start(ctx, cfg); return err }); err != nil {
		return hintAtCommand(err, cfg.Image)
	}
	if err := f.prepared(ctx, ui, sb); err != nil {
		return err
	}
	if saysCommand(sb.Image().Config, f, argv) {
		if _, err := startJob(ctx, ui, sb, sandbox.MainJob, execOptions(sb.Image().Config, f, argv)); err != nil {
			return errors.Join(err, sb.Discard(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(started(ui, sb), sb.Close())
}

// saysCommand reports whether the user, the policy or the image names a command. The default shell doesn't count, since
// nobody could type into it.
func saysCommand(c image.Config, f *runFlags, argv []string) bool {
	if f.entrypoint.given {
		return f.entrypoint.program != "" || len(argv) > 0
	}
	return len(argv)+len(c.Entrypoint)+len(c.Cmd) > 0
}

// anyName is a name that no other sandbox has.
func anyName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return "sb-" + hex.EncodeToString(b[:])
}
