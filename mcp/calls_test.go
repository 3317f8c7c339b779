package mcp

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// slow makes programs run until gate is closed, and clients wait for hardly any time.
func (p *playground) slow() (gate chan struct{}) {
	gate = make(chan struct{})
	p.calls.patience = time.Millisecond
	p.fake.exec = func(ctx context.Context, o sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		select {
		case <-gate:
			_, err := io.WriteString(o.Stdout, "ran "+strings.Join(o.Argv, " "))
			return sandbox.ExitStatus{}, err
		case <-ctx.Done():
			return sandbox.ExitStatus{}, ctx.Err()
		}
	}
	return gate
}

func TestLongCallsGetAName(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	gate := p.slow()
	p.says(t, false, "sandbox_exec", m{"argv": []string{"a"}}, "sandbox_exec is still under way", `job "call-1"`)
	p.calls.patience, p.calls.waiting = time.Hour, time.Millisecond
	p.says(t, false, "job", m{"action": "wait", "job": "call-1"}, "still under way", "call-1")
	p.says(t, true, "job", m{"action": "logs", "job": "call-1"}, "wait and kill")
	p.says(t, true, "job", m{"action": "start", "job": "call-7", "command": "true"}, "call-")
	p.says(t, false, "job", m{"action": "list"}, `"calls":[{"job":"call-1","tool":"sandbox_exec","done":false}]`)
	p.says(t, true, "job", m{"action": "wait", "job": "call-2"}, "no such call: call-2", "there are: call-1")
	close(gate)
	p.calls.waiting = time.Hour
	p.says(t, false, "job", m{"action": "wait", "job": "call-1"}, "exit code 0", "ran a")
	if text := p.says(t, false, "job", m{"action": "list"}); strings.Contains(text, "call-1") {
		t.Error(text)
	}
	p.says(t, true, "job", m{"action": "wait", "job": "call-1"}, "none is under way") // a result is given once
}

func TestKillEndsLongCalls(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.slow()
	p.says(t, false, "sandbox_run", m{"argv": []string{"a"}}, "call-1")
	p.calls.patience = time.Hour
	p.says(t, false, "job", m{"action": "kill", "job": "call-1"}, "call-1 ended")
	p.says(t, true, "job", m{"action": "kill", "job": "call-1"}, "no such call")
	if p.reserved != 0 {
		t.Errorf("%d places taken by a run that was ended", p.reserved)
	}
}

// TestI11_CallsThatGoOnAreBounded fills the list: one more is waited for, and one that is done makes room.
func TestI11_CallsThatGoOnAreBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	gate := p.slow()
	for range maxCalls {
		p.says(t, false, "sandbox_exec", m{"command": "x"}, "still under way")
	}
	answer := make(chan string)
	go func() {
		r, err := p.client.CallTool(context.Background(), &sdk.CallToolParams{Name: "sandbox_exec", Arguments: m{"command": "last"}})
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- r.Content[0].(*sdk.TextContent).Text
	}()
	close(gate)
	if text := <-answer; !strings.Contains(text, "ran /bin/sh -c last") && !strings.Contains(text, "call-17") {
		t.Errorf("the call that is one too many: %s", text)
	}
	p.calls.running.Wait() // all are done now
	p.slow()
	p.says(t, false, "sandbox_exec", m{"command": "x"}, "still under way")
	if len(p.calls.names) > maxCalls || len(p.calls.byName) != len(p.calls.names) {
		t.Errorf("%d calls kept, %d names", len(p.calls.byName), len(p.calls.names))
	}
}

func TestFullListsAreDropped(t *testing.T) {
	t.Parallel()
	c := newCalls()
	c.patience = 0
	block := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
	for range maxCalls {
		if text, err := c.do(t.Context(), "x", block); err != nil || !strings.Contains(text, "under way") {
			t.Fatal(text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.do(ctx, "x", block); !errors.Is(err, context.Canceled) { // it has no name, and ends with its client
		t.Errorf("one too many: %v", err)
	}
	c.close()
	for name, one := range c.byName {
		if !one.ended() {
			t.Errorf("%s goes on behind the server's end", name)
		}
	}
	if _, err := c.do(t.Context(), "x", block); err == nil {
		t.Error("a call behind the server's end")
	}
}

func TestJobListShowsExitCodes(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	text, err := p.jobs.listJobs([]sandbox.JobStatus{{Name: "on", State: sandbox.JobRunning}, {Name: "ended", State: sandbox.JobExited}})
	if err != nil || strings.Count(text, `"exit_code"`) != 1 || !strings.Contains(text, `"exit_code":0`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestWaitNamesExistingJobs(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "x"}, "exit code 0")
	p.says(t, true, "job", m{"action": "wait"}, "name the job")
	p.says(t, true, "job", m{"action": "wait", "job": "none"}, "none")
}
