package sandbox

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func TestStoppedSandboxesAreUpdated(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	if err := aNamed(t, h, "web"); err != nil {
		t.Fatal(err)
	}
	hour, cpus, memory := time.Hour, 2, int64(1<<30)
	if err := h.Update(t.Context(), "web", Changes{Lifetime: &hour, CPUs: &cpus, Memory: &memory, Restart: &Restart{When: "always"}, Labels: map[string]string{"team": "a"}}); err != nil {
		t.Fatal(err)
	}
	st, err := h.Inspect("web")
	if err != nil || st.Lifetime != hour || st.CPUs != 2 || st.Memory != memory || st.Restart != "always" || st.Labels["team"] != "a" {
		t.Errorf("%v: %+v", err, st)
	}
	if err := h.Keep(t.Context(), "web"); err != nil {
		t.Error(err)
	}
	none, little, negative := 0, int64(1), -time.Hour
	for name, c := range map[string]Changes{
		"no processor": {CPUs: &none}, "little memory": {Memory: &little}, "a negative time": {IdleStop: &negative},
		"no policy": {Restart: &Restart{When: "sometimes"}}, "a label without a key": {Labels: map[string]string{"": "x"}},
	} {
		c.Keep = true
		if err := h.Update(t.Context(), "web", c); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if again, err := h.Inspect("web"); err != nil || again.CPUs != 2 || again.Memory != memory {
		t.Errorf("what was refused has changed it: %+v, %v", again, err)
	}
	if err := h.Update(t.Context(), "nosuch", Changes{Keep: true}); !errors.Is(err, ErrNoSandbox) {
		t.Error(err)
	}
	stored, err := loadStored(h, "web")
	must(t, err)
	stored.AutoRemove, stored.Restart = true, Restart{}
	must(t, state.WriteJSON(namedPath(h, "web"), state.StoredFile, stored))
	if err := h.Update(t.Context(), "web", Changes{Restart: &Restart{When: "always"}}); !errors.Is(err, ErrConfig) {
		t.Errorf("one that is removed when its run ends is restarted: %v", err)
	}
}

// obeying is a supervisor that makes any change.
type obeying struct {
	ending
	changed atomic.Int32
}

func (o *obeying) Update(context.Context, *agentpb.UpdateRequest) (*agentpb.UpdateResponse, error) {
	o.changed.Add(1)
	return &agentpb.UpdateResponse{}, nil
}

// TestI12_BadChangesReachNoSupervisor: what Create would refuse is refused before the supervisor of one that runs would
// write it down for the next start. The twin is a good change.
func TestI12_BadChangesReachNoSupervisor(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	l, err := state.ListenControl(namedPath(h, "web"))
	must(t, err)
	o, srv := new(obeying), grpc.NewServer()
	agentpb.RegisterAgentServer(srv, o)
	agentpb.RegisterSupervisorServer(srv, o)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-served }()
	none, two := 0, 2
	if err := h.Update(t.Context(), "web", Changes{CPUs: &none}); !errors.Is(err, ErrConfig) || o.changed.Load() != 0 {
		t.Errorf("no processor: %v, %d changes", err, o.changed.Load())
	}
	if err := h.Update(t.Context(), "web", Changes{CPUs: &two}); err != nil || o.changed.Load() != 1 {
		t.Errorf("two processors: %v, %d changes", err, o.changed.Load())
	}
}

// ending is a supervisor that is stopped while it makes a change.
type ending struct {
	agentpb.UnimplementedAgentServer
	agentpb.UnimplementedPortsServer
	agentpb.UnimplementedSupervisorServer
	stop chan<- struct{}
}

func (e *ending) end(ctx context.Context) error {
	e.stop <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func (e *ending) Stats(context.Context, *agentpb.StatsRequest) (*agentpb.StatsResponse, error) {
	return &agentpb.StatsResponse{}, nil
}

func (e *ending) Update(ctx context.Context, _ *agentpb.UpdateRequest) (*agentpb.UpdateResponse, error) {
	return nil, e.end(ctx)
}

func (e *ending) AddPort(ctx context.Context, _ *agentpb.PortRequest) (*agentpb.PortResponse, error) {
	return nil, e.end(ctx)
}

// TestSandboxesThatEndMeanwhileDoNotRun: not the guest's agent is gone for who changes a sandbox that another command stops.
func TestSandboxesThatEndMeanwhileDoNotRun(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*Home) error{
		"update":  func(h *Home) error { return h.Keep(t.Context(), "web") },
		"request": func(h *Home) error { return changeRequests(t.Context(), h, "web", Changes{Keep: true}, nil) },
		"port": func(h *Home) error {
			_, err := h.Ports().Add(t.Context(), "web", Port{Guest: 80})
			return err
		},
	} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		l, err := state.ListenControl(namedPath(h, "web"))
		must(t, err)
		stop, srv := make(chan struct{}), grpc.NewServer()
		e := &ending{stop: stop}
		agentpb.RegisterAgentServer(srv, e)
		agentpb.RegisterPortsServer(srv, e)
		agentpb.RegisterSupervisorServer(srv, e)
		go func() { _ = srv.Serve(l) }()
		go func() { <-stop; srv.Stop() }()
		err = change(h)
		if !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "web ended before it answered") {
			t.Errorf("%s: %v", what, err)
		}
		srv.Stop()
	}
}
