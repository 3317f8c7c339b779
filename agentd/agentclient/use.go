package agentclient

import (
	"context"
	"strings"

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

// useUnary and useStream report calls to Use. Calls for figures don't count as use, since monitoring repeats them.
func (s Services) useUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if info.FullMethod != agentpb.Agent_Stats_FullMethodName && info.FullMethod != agentpb.Supervisor_Usage_FullMethodName && info.FullMethod != agentpb.Containers_Stats_FullMethodName {
		defer used(s.Use)()
	}
	if err := s.refused(info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (s Services) useStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	defer used(s.Use)()
	if err := s.refused(info.FullMethod); err != nil {
		return err
	}
	return next(srv, stream)
}

// refused is Refuse's answer to a call of that method. It doesn't ask for calls that work without the guest.
func (s Services) refused(method string) error {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch {
	case s.Refuse == nil, method == agentpb.Jobs_RemoveJob_FullMethodName,
		service == agentpb.Supervisor_ServiceDesc.ServiceName, service == agentpb.Ports_ServiceDesc.ServiceName:
		return nil
	}
	if err := s.Refuse(); err != nil {
		return statusOf(err)
	}
	return nil
}
