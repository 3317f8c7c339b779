//go:build linux

package agentd

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/fileops"
)

// searchServer looks for texts in the upper layer.
type searchServer struct {
	agentpb.UnimplementedSearchServer
	ops machineOps
	mu  sync.Mutex // one at a time: it reads the whole disk
}

var _ agentpb.SearchServer = (*searchServer)(nil)

// Find implements agentpb.SearchServer.
func (s *searchServer) Find(ctx context.Context, req *agentpb.FindRequest) (*agentpb.FindResponse, error) {
	if n := len(req.GetTexts()); n == 0 || n > agentpb.MaxFindTexts {
		return nil, status.Errorf(codes.InvalidArgument, "%d texts are looked for; give 1 to %d", n, agentpb.MaxFindTexts)
	}
	for _, t := range req.GetTexts() {
		if len(t) < agentpb.MinFindBytes || len(t) > agentpb.MaxFindBytes {
			return nil, status.Errorf(codes.InvalidArgument, "a text has %d bytes; give %d to %d", len(t), agentpb.MinFindBytes, agentpb.MaxFindBytes)
		}
	}
	if !s.mu.TryLock() {
		return nil, status.Error(codes.ResourceExhausted, "the disk is searched already")
	}
	defer s.mu.Unlock()
	root, err := s.ops.Upper()
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	defer root.Close()
	found, more, err := fileops.Search(ctx, root, req.GetTexts())
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	resp := &agentpb.FindResponse{More: more}
	for _, path := range found {
		resp.Paths = append(resp.Paths, []byte(path))
	}
	return resp, nil
}
