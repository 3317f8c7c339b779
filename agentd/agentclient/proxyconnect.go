package agentclient

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// connectProxy serves connections into the guest on.
type connectProxy struct {
	agentpb.UnimplementedConnectionsServer
	proxy
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

// Listen implements agentpb.ConnectionsServer: it is refused. An msb of before, which had the SSH server, asks for it.
func (p *connectProxy) Listen(*agentpb.ListenRequest, grpc.ServerStreamingServer[agentpb.ListenResponse]) error {
	return status.Error(codes.PermissionDenied, "only the sandbox's own SSH server opens ways out of the guest; use the msb that started the sandbox")
}
