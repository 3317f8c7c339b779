package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/image"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// said is an error in this server's own words, and its client's: nothing of it is a guest's.
type said struct{ error }

// Unwrap gives the cause.
func (s said) Unwrap() error { return s.error }

func say(format string, args ...any) error { return said{fmt.Errorf(format, args...)} }

// ownErrors are sentinels of errors that this machine alone words. A supervisor passes errors on as text, which may hold
// the guest's console and has none of them. ErrDirectory is none: a guest chooses where links in its directories lead.
var ownErrors = []error{
	errArgs, errTooMany, context.Canceled, context.DeadlineExceeded, image.ErrNotCached, image.ErrReference,
	sandbox.ErrConfig, sandbox.ErrHome, sandbox.ErrVariable,
	sandbox.ErrName, sandbox.ErrNoSandbox, sandbox.ErrExists, sandbox.ErrRunning, sandbox.ErrNotRunning,
	sandbox.ErrJobName, sandbox.ErrNoJob, sandbox.ErrJobExists, sandbox.ErrJobRunning, sandbox.ErrJobEnded, sandbox.ErrJobLimit, sandbox.ErrJobInput,
	sandbox.ErrVolumeName, sandbox.ErrNoVolume, sandbox.ErrVolumeBusy, sandbox.ErrSnapshotName, sandbox.ErrNoSnapshot, sandbox.ErrSnapshotExists, sandbox.ErrSnapshotOf, sandbox.ErrChildren,
}

// own reports whether no guest chose anything of an error's text: all that it is made of is known to be this machine's.
func own(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it looks at each part by itself
	case said, policies.ErrorList, *sandbox.GrantsError:
		return true
	case *fs.PathError: // a guest says which
		return false
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(part error) bool { return !own(part) })
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && own(e.Unwrap())
	}
	return slices.Contains(ownErrors, err)
}

// sentence is an error for a model. What may be a guest's of it stands between marks, below a sentence that isn't.
func sentence(err error) string {
	text := withoutCommands(err.Error())
	if own(err) {
		shown, n := escape([]byte(text), maxSentence)
		if n < len(text) {
			shown += "…"
		}
		text = shown
	} else {
		text = plainly(err) + "\n" + strings.TrimSuffix(marked("error", text, maxSentence), "\n")
	}
	if next := remedy(err); next != "" {
		text += "\nNext: " + next
	}
	return text
}

// marked is text that may be a guest's, between marks, at most about budget bytes of it.
func marked(what, text string, budget int) string {
	var c capture
	_, _ = c.Write([]byte(text)) // it never fails
	shown, _ := c.shown(what, budget)
	return shown
}

// plainly says what kind of an error one is.
func plainly(err error) string {
	var path *fs.PathError
	var errno syscall.Errno
	switch {
	case errors.As(err, &path) && errors.As(path.Err, &errno):
		return "the sandbox's files: " + errno.Error()
	case errors.As(err, &path):
		return "the sandbox can't do this with its files"
	case errors.Is(err, sandbox.ErrDirectory):
		return "a directory that the operator shares can't be shared now"
	case errors.Is(err, agentclient.ErrRefused):
		return "the sandbox refused it"
	case errors.Is(err, sandbox.ErrBusy):
		return "the sandbox takes no more for now"
	case errors.Is(err, agentclient.ErrTimeout):
		return "the sandbox did not answer in time"
	}
	switch sandbox.KindOf(err) { //nolint:exhaustive // the others have no sentence of their own
	case sandbox.KindImageUnknown, sandbox.KindImagePlatform, sandbox.KindImageRefused:
		return "the image can't be used"
	case sandbox.KindNoBackend, sandbox.KindKVMPermission:
		return "this machine can't start sandboxes"
	case sandbox.KindNoSpace:
		return "there is no space left"
	case sandbox.KindGuestMemory:
		return "the sandbox ran out of memory"
	case sandbox.KindGuestPanic:
		return "the sandbox's kernel panicked"
	case sandbox.KindAgent:
		return "the sandbox ended, or does not answer"
	case sandbox.KindSecret:
		return "the policy ended the sandbox"
	case sandbox.KindLifetime, sandbox.KindIdle:
		return "the sandbox ended"
	}
	return "the call failed"
}
