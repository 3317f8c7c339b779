package agentclient

import (
	"context"
	"testing"
	"time"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestExitsAreToldWhole, and a caller that has no more sizes for its terminal can still send signals.
func TestExitsAreToldWhole(t *testing.T) {
	t.Parallel()
	for exit, want := range map[*agentpb.Exit]ExitStatus{
		{Code: 137, Signal: 9, TimedOut: true, OutputHeld: true}: {Code: 137, Signal: SIGKILL, TimedOut: true, OutputHeld: true},
		{Code: 137, Signal: 9, OomKilled: true}:                  {Code: 137, Signal: SIGKILL, OOMKilled: true},
		{Code: 3}:                                                {Code: 3},
	} {
		signals := make(chan uint32, 1)
		c := dialFake(t, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{StdinWindow: 1}}}); err != nil {
				return err
			}
			r, err := s.Recv()
			if err != nil {
				return err
			}
			signals <- r.GetSignal()
			return s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Exit{Exit: exit}})
		}})
		resize, asked := make(chan Size), make(chan Signal, 1)
		close(resize)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		got, err := c.Exec(ctx, ExecOptions{Argv: []string{"x"}, TTY: true, Resize: resize, Signals: asked, OnStart: func() {
			time.AfterFunc(10*time.Millisecond, func() { asked <- SIGTERM })
		}})
		if err != nil || got != want || <-signals != uint32(SIGTERM) {
			t.Fatalf("got %+v, %v; want %+v", got, err, want)
		}
	}
}
