package agentclient

import (
	"context"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
)

// used begins a use; use may be nil.
func used(use func() func()) (done func()) {
	if use == nil {
		return func() {}
	}
	return use()
}

// useUnary and useStream tell Use of calls. To look at a sandbox's figures again and again, as monitoring does, is no use
// of it.
func (s Services) useUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.FullMethod != agentpb.Agent_Stats_FullMethodName && info.FullMethod != agentpb.Supervisor_Usage_FullMethodName {
		defer used(s.Use)()
	}
	return next(ctx, req)
}

func (s Services) useStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	defer used(s.Use)()
	return next(srv, stream)
}
