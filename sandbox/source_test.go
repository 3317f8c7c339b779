package sandbox

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
)

// freezer is a guest's agent that freezes, as far as its host can tell.
type freezer struct {
	agentpb.UnimplementedFreezerServer
	frozen atomic.Bool
	early  chan struct{} // closed: the disk thaws by itself
	limit  time.Duration // the guest thaws by itself after that
}

func (f *freezer) Freeze(stream grpc.BidiStreamingServer[agentpb.FreezeRequest, agentpb.FreezeResponse]) error {
	r, err := stream.Recv()
	if err != nil {
		return err
	}
	f.limit = time.Duration(r.GetLimitNs())
	f.frozen.Store(true)
	defer f.frozen.Store(false)
	if err := stream.Send(&agentpb.FreezeResponse{}); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = stream.Recv() }()
	select {
	case <-ended:
	case <-f.early:
	}
	select {
	case <-f.early: // also if the client has come to its end since
		return errors.New("its time is over")
	default:
	}
	f.frozen.Store(false)
	return stream.Send(&agentpb.FreezeResponse{})
}

// aLive is a sandbox whose guest is f.
func aLive(t *testing.T, f *freezer) *source {
	t.Helper()
	host, guest := net.Pipe()
	srv := grpc.NewServer(grpc.WaitForHandlers(true))
	agentpb.RegisterFreezerServer(srv, f)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(handoff.Of(guest)) }()
	client, err := agentclient.Attach(host)
	must(t, err)
	t.Cleanup(func() { _ = client.Close(); srv.Stop(); <-served })
	return &source{live: &Sandbox{client: client}}
}

// TestDisksAreThawedFirst: whatever becomes of a copy, nothing else is done before the guest may write again.
func TestDisksAreThawedFirst(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]struct{ err error }{"a copy": {nil}, "a full disk": {syscall.ENOSPC}, "cancelled": {context.Canceled}} {
		f := &freezer{early: make(chan struct{})}
		s := aLive(t, f)
		err := s.frozen(t.Context(), func(ctx context.Context) error {
			if !f.frozen.Load() {
				t.Errorf("%s: the disk is not frozen meanwhile", what)
			}
			if until, ok := ctx.Deadline(); !ok || time.Until(until) > MaxFreeze || f.limit != MaxFreeze {
				t.Errorf("%s: the copy has until %s, and the guest waits for %s", what, until, f.limit)
			}
			return do.err
		})
		if !errors.Is(err, do.err) || f.frozen.Load() {
			t.Errorf("%s: %v; frozen %v", what, err, f.frozen.Load())
		}
	}
}

// TestCopiesOfThawedDisksAreRefused: the guest wrote while its disk was copied.
func TestCopiesOfThawedDisksAreRefused(t *testing.T) {
	t.Parallel()
	f := &freezer{early: make(chan struct{})}
	if err := aLive(t, f).frozen(t.Context(), func(context.Context) error { close(f.early); return nil }); err == nil {
		t.Error("the copy was taken for good")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := aLive(t, &freezer{}).frozen(ctx, func(context.Context) error { t.Error("copied"); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
