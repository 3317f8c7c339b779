//go:build linux

package agentd

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// SetClock implements agentpb.AgentServer.
func (s *server) SetClock(_ context.Context, req *agentpb.SetClockRequest) (*agentpb.SetClockResponse, error) {
	offset, err := s.ops.SetClock(time.Unix(0, req.GetClockUnixNs()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &agentpb.SetClockResponse{OffsetNs: int64(offset)}, nil
}

// Stats implements agentpb.AgentServer.
func (s *server) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	resp := s.ops.Stats()
	resp.Execs = uint32(max(s.execs.Load(), 0))
	resp.MaxExecs = uint32(s.maxExecs)
	resp.ClockUnixNs = time.Now().UnixNano()
	return resp, nil
}

// Shutdown implements agentpb.AgentServer. The machine is left after the
// answer is out.
func (s *server) Shutdown(context.Context, *agentpb.ShutdownRequest) (*agentpb.ShutdownResponse, error) {
	s.down.Do(func() { close(s.shutdown) })
	return &agentpb.ShutdownResponse{}, nil
}
