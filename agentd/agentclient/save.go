package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// ErrNotSaved means that the memory of a sandbox can't be saved as it is now.
var ErrNotSaved = errors.New("its memory can't be saved")

// SaveMemory writes the guest's memory and state into a snapshot that is being made in the directory work, and calls still
// when that is done and the guest stands still. The guest stands still from a little before its memory is written until
// SaveMemory returns, for at most limit. ErrNotSaved for a sandbox that can't be saved.
type SaveMemory func(ctx context.Context, work string, limit time.Duration, still func(context.Context) error) error

// Save is SaveMemory of the supervisor.
func (c *Client) Save(ctx context.Context, work string, limit time.Duration, still func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stream, err := c.supervisor.Save(ctx)
	if err != nil {
		return c.callError(ctx, err)
	}
	_ = stream.Send(&agentpb.SaveRequest{Work: work, LimitNs: int64(limit)}) // its only error is the call's own
	if err := c.saveAnswer(ctx, stream); err != nil {
		return err
	}
	if err := still(ctx); err != nil {
		return err
	}
	_ = stream.CloseSend() // as above
	return c.saveAnswer(ctx, stream)
}

func (c *Client) saveAnswer(ctx context.Context, stream agentpb.Supervisor_SaveClient) error {
	r, err := stream.Recv()
	switch {
	case status.Code(err) == codes.Unimplemented:
		return errOldSupervisor
	case errors.Is(err, io.EOF):
		return c.fail(fmt.Errorf("%w: a save without its end", ErrProtocol))
	case err != nil:
		return c.callError(ctx, err)
	case r.GetRefused():
		return fmt.Errorf("%w: %s", ErrNotSaved, guestText(r.GetError()))
	case r.GetError() != "":
		return errors.New(guestText(r.GetError()))
	}
	return nil
}

// Save implements agentpb.SupervisorServer.
func (a *supervisorAdapter) Save(stream grpc.BidiStreamingServer[agentpb.SaveRequest, agentpb.SaveResponse]) error {
	if a.save == nil {
		return a.UnimplementedSupervisorServer.Save(stream)
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	limit := time.Duration(first.GetLimitNs())
	if limit <= 0 {
		return status.Error(codes.InvalidArgument, "a save needs a limit")
	}
	err = a.save(stream.Context(), first.GetWork(), limit, func(ctx context.Context) error {
		if err := stream.Send(&agentpb.SaveResponse{}); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
		select {
		case err := <-ended:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return errors.Join(err, ctx.Err())
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if errors.Is(err, ErrPaused) {
		return statusOf(err)
	}
	r := &agentpb.SaveResponse{Refused: errors.Is(err, ErrNotSaved)}
	if err != nil {
		r.Error = strings.TrimPrefix(err.Error(), ErrNotSaved.Error()+": ") // the other side adds the words by itself
	}
	return stream.Send(r)
}
