package agentclient

import (
	"context"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// connectProxy serves connections into the guest on.
type connectProxy struct {
	agentpb.UnimplementedConnectionsServer
	proxy
	back func(ctx context.Context, to Back, port uint16) (context.Context, func(), error)
}

var _ agentpb.ConnectionsServer = (*connectProxy)(nil)

// Connect implements agentpb.ConnectionsServer.
func (p *connectProxy) Connect(down grpc.BidiStreamingServer[agentpb.ConnectRequest, agentpb.ConnectResponse]) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := p.c.conns.Connect(ctx)
	if err != nil {
		return p.status(ctx, err)
	}
	return carry(ctx, &p.proxy, down, up)
}
