package agentclient

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/internal/printable"
)

var (
	// ErrProtocol means that the guest broke the protocol. The session is over.
	ErrProtocol = errors.New("guest agent broke the protocol")

	// errTooLarge means that the guest sent a message above
	// agentpb.MaxMessageBytes. The session is over.
	errTooLarge = errors.New("guest agent sent a message that is too large")

	// ErrVersion means that host and guest share no protocol version. The
	// remedy is to start the sandbox with the msb that prepared its disks.
	ErrVersion = errors.New("guest agent speaks no protocol version that this msb speaks")

	// ErrAgentDead means that the stream ended: the machine stopped, its
	// kernel panicked or the agent died.
	ErrAgentDead = errors.New("guest agent is gone")

	// ErrTimeout means that the guest did not answer within the deadline.
	ErrTimeout = errors.New("guest agent did not answer in time")

	// ErrClosed means that Client.Close was called on this side.
	ErrClosed = errors.New("agent session is closed")

	// ErrDetach is returned by ExecOptions.Stdin when its user detaches: the process runs on,
	// and the session continues.
	ErrDetach = errors.New("detached")

	// ErrBusy means that the guest runs as many processes for the host as it may; the session
	// continues.
	ErrBusy = errors.New("guest agent is at its limit of processes")

	// ErrPaused means that the guest is paused; the session goes on.
	ErrPaused = errors.New("the sandbox is paused; `msb resume` lets it go on")

	// ErrRefused means that the guest could not do what was asked, as with a user that the
	// image doesn't have; the session continues.
	ErrRefused = errors.New("guest agent refused the request")
)

// maxGuestTextBytes bounds a guest's text in an error.
const maxGuestTextBytes = 512

// guestText makes a guest's text safe for an error: bounded, and without control characters.
func guestText(s string) string {
	if len(s) > maxGuestTextBytes {
		s = s[:maxGuestTextBytes] + "…"
	}
	return strings.Map(func(r rune) rune {
		if printable.Obeyed(r) || r == '\ufffd' {
			return '?'
		}
		return r
	}, s)
}

// localTooLarge is how gRPC begins the error for a received message that is
// over the limit; it shares its code with the guest's own refusals.
const localTooLarge = "grpc: received message larger than max"

// notMarshaled is how gRPC begins the error for a message that could not be sent, on either side, such as a path that is not
// UTF-8: the stream is as it was.
const notMarshaled = "grpc: error while marshaling"

// earlyDeadline is how long before the caller's deadline the guest's end may see it pass.
const earlyDeadline = 100 * time.Millisecond

// callError translates the error of a call, and ends the session if the guest can't be reached
// any more.
func (c *Client) callError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := c.Err(); ended != nil {
		return ended
	}
	if ctx.Err() != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
		}
		return ctx.Err()
	}
	st, _ := status.FromError(err)
	text := guestText(st.Message())
	switch st.Code() { //nolint:exhaustive // every other code is a broken protocol
	case codes.ResourceExhausted:
		if strings.HasPrefix(st.Message(), localTooLarge) {
			return c.fail(fmt.Errorf("%w: %s", errTooLarge, text))
		}
		return fmt.Errorf("%w: %s", ErrBusy, text)
	case codes.InvalidArgument, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied, codes.Aborted:
		return fmt.Errorf("%s%s%w%s", text, refusedBefore, ErrRefused, refusedAfter)
	case codes.OutOfRange:
		return ErrPaused
	case codes.Unimplemented:
		return fmt.Errorf("%w: %s", ErrVersion, text)
	case codes.DeadlineExceeded, codes.Canceled:
		// The guest's end counts the caller's deadline too, and may be a moment early.
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < earlyDeadline {
			return fmt.Errorf("%w: %w", ErrTimeout, context.DeadlineExceeded)
		}
		return fmt.Errorf("%w: %s", ErrTimeout, text)
	case codes.Unavailable:
		return c.fail(fmt.Errorf("%w: %s", ErrAgentDead, text))
	case codes.Internal:
		if strings.HasPrefix(st.Message(), notMarshaled) {
			return fmt.Errorf("a text of the call is not UTF-8%s%w%s", refusedBefore, ErrRefused, refusedAfter)
		}
	}
	return c.fail(fmt.Errorf("%w: %s", ErrProtocol, text))
}

// refusedBefore and refusedAfter enclose ErrRefused, which follows the cause.
const refusedBefore, refusedAfter = " (", ")"
