package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// copyIn is a value of --copy.
type copyIn struct{ host, guest string }

// parseCopies reads the values of --copy, HOST:GUEST. It splits at the last ":/", since a path of this machine may hold
// colons.
func parseCopies(values []string) ([]copyIn, error) {
	all := make([]copyIn, 0, len(values))
	for _, v := range values {
		i := strings.LastIndex(v, ":/")
		if i <= 0 {
			return nil, fmt.Errorf("--copy %s: write HOST:GUEST, with an absolute path in the guest, such as ./src:/work", v)
		}
		all = append(all, copyIn{v[:i], v[i+1:]})
	}
	return all, nil
}

// copyAll does what msb cp does for each, before the command runs. It makes the directories above GUEST.
func copyAll(ctx context.Context, ui *ui, sb *sandbox.Sandbox, copies []copyIn) error {
	for _, c := range copies {
		up := path.Dir(path.Clean(c.guest))
		err := sb.Files().Mkdir(ctx, up, sandbox.MkdirOptions{Parents: true})
		if err == nil {
			var report sandbox.CopyReport
			report, err = sb.CopyTo(ctx, c.host, c.guest, sandbox.CopyOptions{})
			noteSkipped(ui, report)
		}
		if err != nil {
			return fmt.Errorf("--copy %s:%s: %w", c.host, c.guest, plainError(err))
		}
	}
	return nil
}

// noteSkipped names what a copy left out.
func noteSkipped(ui *ui, report sandbox.CopyReport) {
	if len(report.Skipped) == 0 {
		return
	}
	more := ""
	if report.SkippedMore > 0 {
		more = fmt.Sprintf(" and %d more", report.SkippedMore)
	}
	ui.note("left out, since devices, FIFOs and sockets can't be copied: %s%s", strings.Join(report.Skipped, ", "), more)
}

// prepared copies into a sandbox that was made for a command, and discards the sandbox if that fails.
func (f *runFlags) prepared(ctx context.Context, ui *ui, sb *sandbox.Sandbox) error {
	if err := copyAll(ctx, ui, sb, f.copiesIn); err != nil {
		return errors.Join(err, sb.Discard(context.WithoutCancel(ctx)))
	}
	return nil
}
