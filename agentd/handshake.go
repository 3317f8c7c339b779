//go:build linux

package agentd

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Handshake implements agentpb.AgentServer. It is tried once: a machine that
// is configured by half is of no use, and the host starts another.
func (s *server) Handshake(ctx context.Context, req *agentpb.HandshakeRequest) (*agentpb.HandshakeResponse, error) {
	version := min(req.GetMaxVersion(), agentpb.MaxVersion)
	if version < req.GetMinVersion() || version < agentpb.MinVersion {
		return nil, status.Errorf(codes.Unimplemented, "this agent speaks the versions %d to %d, the host %d to %d",
			agentpb.MinVersion, agentpb.MaxVersion, req.GetMinVersion(), req.GetMaxVersion())
	}
	for i, e := range req.GetEnv() { // never quoted: a value may be private
		if strings.IndexByte(e, '=') <= 0 || strings.IndexByte(e, 0) >= 0 {
			return nil, status.Errorf(codes.InvalidArgument, "environment entry %d is not KEY=value without NUL", i+1)
		}
	}
	if n := len(req.GetResumeKey()); n != 0 && n != agentpb.ResumeKeyBytes {
		return nil, status.Errorf(codes.InvalidArgument, "a resume key of %d bytes", n)
	}
	if s.shaking.Swap(true) {
		return nil, status.Error(codes.FailedPrecondition, "the handshake was done already")
	}
	if req.GetResumed() != (s.env.Load() != nil) {
		return nil, status.Error(codes.FailedPrecondition, "a machine is configured once; the next session only goes on")
	}
	env, warnings, err := s.ops.Configure(ctx, req)
	if err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	if d := req.GetRoot().GetTransfer(); d != nil && !req.GetResumed() {
		if s.files.transfer, err = openTransferDisk(ctx, d); err != nil {
			return nil, status.Error(codes.Aborted, err.Error())
		}
	}
	s.env.Store(&env)
	s.port.setKey(req.GetResumeKey())
	if s.containers != nil {
		s.containers.trust = req.GetTrust()
	}
	s.ready.Store(true)
	return &agentpb.HandshakeResponse{
		Version:      version,
		AgentVersion: Version,
		Kernel:       s.ops.Kernel(),
		Warnings:     warnings,
		ClockUnixNs:  time.Now().UnixNano(),
	}, nil
}
