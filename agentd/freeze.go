//go:build linux

package agentd

import (
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// maxFreeze bounds how long the workload's writes are held, whatever the host asks for.
const maxFreeze = time.Minute

// freezeServer freezes the workload's disk. It thaws it by its own clock, since the host may stop or die meanwhile.
type freezeServer struct {
	agentpb.UnimplementedFreezerServer
	shutdown <-chan struct{}
	ops      machineOps
	longest  time.Duration
	mu       sync.Mutex // held while it is frozen
}

var _ agentpb.FreezerServer = (*freezeServer)(nil)

type freezeStream = grpc.BidiStreamingServer[agentpb.FreezeRequest, agentpb.FreezeResponse]

// Freeze implements agentpb.FreezerServer.
func (s *freezeServer) Freeze(stream freezeStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	limit := time.Duration(first.GetLimitNs())
	if limit <= 0 {
		return status.Error(codes.InvalidArgument, "a freeze needs a limit")
	}
	if !s.mu.TryLock() {
		return status.Error(codes.ResourceExhausted, "the disk is frozen already, for another snapshot")
	}
	defer s.mu.Unlock()
	timer := time.NewTimer(min(limit, s.longest)) // it also bounds how long writing back may take
	defer timer.Stop()
	if err := s.ops.Freeze(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	held := s.hold(stream, timer.C)
	if err := s.ops.Thaw(); err != nil && held == nil {
		held = status.Error(codes.Aborted, "the disk was not frozen to the end: "+err.Error())
	}
	if held != nil {
		return held
	}
	return stream.Send(&agentpb.FreezeResponse{})
}

// hold returns nil when the host has ended the requests in time.
func (s *freezeServer) hold(stream freezeStream, over <-chan time.Time) error {
	ended := make(chan error, 1)
	go func() {
		_, err := stream.Recv()
		ended <- err
	}()
	select {
	case <-over:
		return errFrozenTooLong
	default:
	}
	if err := stream.Send(&agentpb.FreezeResponse{}); err != nil {
		return err
	}
	select {
	case err := <-ended:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return status.Error(codes.InvalidArgument, "a freeze has one request")
	case <-over:
		return errFrozenTooLong
	case <-s.shutdown:
		return status.Error(codes.Aborted, "the machine is about to stop")
	}
}

var errFrozenTooLong = status.Error(codes.Aborted, "the time for which the disk may be frozen is over")
