package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Frozen is a disk of a guest that is held still.
type Frozen struct {
	c      *Client
	ctx    context.Context // of the stream
	cancel context.CancelFunc
	stream agentpb.Freezer_FreezeClient
}

// Freeze makes the guest write back its disk and hold all writes to it until Thaw, for at most limit. ctx bounds all of it.
// A hostile guest may write all the same.
func (c *Client) Freeze(ctx context.Context, limit time.Duration) (*Frozen, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	f := &Frozen{c: c, ctx: ctx, cancel: cancel}
	if err := f.begin(limit); err != nil {
		err = c.callError(ctx, err)
		cancel()
		return nil, fmt.Errorf("freezing the guest's disk: %w", err)
	}
	return f, nil
}

func (f *Frozen) begin(limit time.Duration) (err error) {
	if f.stream, err = f.c.freezer.Freeze(f.ctx); err != nil {
		return err
	}
	_ = f.stream.Send(&agentpb.FreezeRequest{LimitNs: int64(limit)}) // its only error is the call's own
	_, err = f.stream.Recv()
	return err
}

// Thaw lets the guest write again. It is an error if the disk was not frozen until now, since a copy of it is inconsistent.
// A second call does nothing.
func (f *Frozen) Thaw() error {
	defer f.cancel()
	_ = f.stream.CloseSend() // its only error is the call's own
	if _, err := f.stream.Recv(); err != nil {
		if errors.Is(err, io.EOF) {
			err = ErrProtocol
		}
		return fmt.Errorf("the guest's disk was not held still to the end: %w", f.c.callError(f.ctx, err))
	}
	return nil
}

// freezeProxy serves freezes on.
type freezeProxy struct {
	agentpb.UnimplementedFreezerServer
	proxy
}

var _ agentpb.FreezerServer = (*freezeProxy)(nil)

// Freeze implements agentpb.FreezerServer.
func (p *freezeProxy) Freeze(down grpc.BidiStreamingServer[agentpb.FreezeRequest, agentpb.FreezeResponse]) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := p.c.freezer.Freeze(ctx)
	if err != nil {
		return p.status(ctx, err)
	}
	return carry(ctx, &p.proxy, down, up)
}

// carry passes the messages of a call on in both directions, one at a time.
func carry[Req, Resp any](ctx context.Context, p *proxy, down grpc.BidiStreamingServer[Req, Resp], up grpc.BidiStreamingClient[Req, Resp]) error {
	go func() {
		for {
			req, err := down.Recv()
			if errors.Is(err, io.EOF) {
				_ = up.CloseSend() // its only error is the call's own
				return
			}
			if err != nil || up.Send(req) != nil {
				return
			}
		}
	}()
	for {
		m, err := up.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return p.status(ctx, err)
		}
		if err := down.Send(m); err != nil {
			return err
		}
	}
}
