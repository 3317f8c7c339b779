package agentclient

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// connectProxy serves connections into the guest on.
type connectProxy struct {
	agentpb.UnimplementedConnectionsServer
	proxy
}

var _ agentpb.ConnectionsServer = (*connectProxy)(nil)

// Connect implements agentpb.ConnectionsServer. Both directions pass one message at a time.
func (p *connectProxy) Connect(down grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := p.c.conns.Connect(ctx)
	if err != nil {
		return p.status(ctx, err)
	}
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
