package sandbox

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// brokenAgent answers every call for figures with an error.
type brokenAgent struct {
	agentpb.UnimplementedAgentServer
	code codes.Code
}

func (b brokenAgent) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	return nil, status.Error(b.code, "the guest wrote over its agent")
}

// TestI12_BrokenAgentsOfRunningSandboxesAreNamed: what is done to a sandbox, live or stopped, reported one as running only,
// and lost the reason why it could not be done live.
func TestI12_BrokenAgentsOfRunningSandboxesAreNamed(t *testing.T) {
	t.Parallel()
	for code, want := range map[codes.Code]error{codes.Internal: agentclient.ErrProtocol, codes.Unavailable: agentclient.ErrAgentDead} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		run, err := lockNamed(h, "web")
		must(t, err)
		l, err := state.ListenControl(run.dir)
		must(t, err)
		srv := grpc.NewServer()
		agentpb.RegisterAgentServer(srv, brokenAgent{code: code})
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		hour := time.Hour
		for what, do := range map[string]func() error{
			"a snapshot": func() error {
				_, err := h.Snapshots().Create(t.Context(), "web", SnapshotOptions{})
				return err
			},
			"a port": func() error {
				_, err := h.Ports().Add(t.Context(), "web", Port{Host: 8080, Guest: 80})
				return err
			},
			"an update": func() error { return h.Update(t.Context(), "web", Changes{Lifetime: &hour}) },
			"an answer": func() error {
				return Fail(changeRequests(t.Context(), h, "web", Changes{}, func(*state.Stored) (audit.Event, error) {
					t.Error("the state of a sandbox that runs is changed")
					return audit.Event{}, nil
				}))
			},
		} {
			err := do()
			if !errors.Is(err, want) || errors.Is(err, ErrNotRunning) || errors.Is(err, ErrRunning) || KindOf(err) != KindAgent {
				t.Errorf("%s: %v, want %v alone", what, err, want)
			}
			if err != nil && (!strings.Contains(err.Error(), "the guest wrote over its agent") || !strings.Contains(err.Error(), "msb stop web")) {
				t.Errorf("%s: %v, want the reason and the remedy", what, err)
			}
		}
		srv.Stop()
		<-served
		must(t, run.lock.Close())
	}
}
