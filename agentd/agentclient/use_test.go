package agentclient

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/internal/handoff"
)

// TestFiguresAreNoUse counts what clients of Serve do. Its twin is the call that is a use.
func TestFiguresAreNoUse(t *testing.T) {
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
