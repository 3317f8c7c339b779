package agentclient

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
)

// TestReadingFiguresIsNoUse counts what clients of Serve do. Its twin is the call that is a use.
func TestReadingFiguresIsNoUse(t *testing.T) {
	t.Parallel()
	guest := dialFake(t, &fakeAgent{exec: echoExec, stats: func() (*agentpb.StatsResponse, error) { return &agentpb.StatsResponse{}, nil }})
	var began, ended atomic.Int64
	use := func() func() { began.Add(1); return func() { ended.Add(1) } }
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, handoff.Of(a), guest, Services{Use: use}) }()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stats(t.Context()); err != nil || began.Load() != 0 {
		t.Errorf("%v, %d uses", err, began.Load())
	}
	if _, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"cat"}, Stdin: strings.NewReader("x")}); err != nil || began.Load() == 0 {
		t.Errorf("%v, %d uses", err, began.Load())
	}
	_ = c.Close()
	end()
	<-served
	if began.Load() != ended.Load() {
		t.Errorf("%d uses began, %d ended", began.Load(), ended.Load())
	}
}

// TestPausedGuestsAreAskedNothing: its twin is the same guest before and after.
func TestPausedGuestsAreAskedNothing(t *testing.T) {
	t.Parallel()
	asked := new(atomic.Int64)
	guest := dialFake(t, &fakeAgent{exec: echoExec, stats: func() (*agentpb.StatsResponse, error) { asked.Add(1); return &agentpb.StatsResponse{}, nil }})
	var paused atomic.Bool
	a, b := net.Pipe()
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- Serve(ctx, handoff.Of(a), guest, Services{Refuse: func() error {
			if paused.Load() {
				return ErrPaused
			}
			return nil
		}})
	}()
	c, err := Attach(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{nil, ErrPaused, nil} {
		paused.Store(want != nil)
		before := asked.Load()
		if _, err := c.Stats(t.Context()); !errors.Is(err, want) || (asked.Load() == before) != (want != nil) {
			t.Errorf("figures: %v, asked %d times; want %v", err, asked.Load()-before, want)
		}
		if _, err := c.Exec(t.Context(), ExecOptions{Argv: []string{"cat"}, Stdin: strings.NewReader("x")}); !errors.Is(err, want) {
			t.Errorf("a command: %v, want %v", err, want)
		}
		if want == nil {
			continue // the fake has no files, which would end the session
		}
		if _, err := c.Files().Stat(t.Context(), "/", false); !errors.Is(err, want) {
			t.Errorf("a file: %v, want %v", err, want)
		}
	}
	_ = c.Close()
	end()
	<-served
}
