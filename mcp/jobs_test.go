package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/sandbox"
)

// keptJob writes the file of a job of the default sandbox, which this process supervises.
func (p *playground) keptJob(t *testing.T, st *sandbox.JobStatus) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	start := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))[19] // proc(5)
	st.Command, st.Started = []string{"sleep", "9"}, time.Unix(1, 0).UTC()
	text, err := json.Marshal(struct {
		sandbox.JobStatus
		Supervisor m `json:"supervisor"`
	}{*st, m{"pid": os.Getpid(), "start": start}})
	dir := filepath.Join(p.opts.Home.Dir(), "sandboxes", defaultName, "jobs")
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	file := filepath.Join(dir, st.Name+".json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// TestJobsSayWhatBecameOfThem in a sandbox that is stopped, by each action.
func TestJobsSayWhatBecameOfThem(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	p.calls.waiting = time.Millisecond
	for _, c := range []struct {
		st     sandbox.JobStatus
		failed bool
		want   string
	}{
		{sandbox.JobStatus{Name: "on", State: sandbox.JobRunning}, false, "job on: running still: wait again for its end"},
		{sandbox.JobStatus{Name: "done", State: sandbox.JobExited, Code: 3}, false, "job done: exited, exit code 3; the action logs shows its output"},
		{sandbox.JobStatus{Name: "shot", State: sandbox.JobKilled, Code: 137}, false, "job shot: killed, exit code 137; the action logs shows its output"},
		{sandbox.JobStatus{Name: "gone", State: sandbox.JobLost}, true, "job gone is lost: the sandbox ended under it, so that it has no exit code; the action logs shows its output to that point"},
	} {
		file := p.keptJob(t, &c.st)
		if text := p.says(t, c.failed, "job", m{"action": "wait", "job": c.st.Name}, c.want); strings.Contains(text, "still") != (c.st.State == sandbox.JobRunning) {
			t.Error(text)
		}
		p.says(t, false, "job", m{"action": "logs", "job": c.st.Name}, strings.Split(c.want, ";")[0][:len("job "+c.st.Name)], "next cursor 0 of 0 bytes")
		p.says(t, true, "job", m{"action": "kill", "job": c.st.Name}, "has ended")
		p.says(t, true, "job", m{"action": "input", "job": c.st.Name, "data": "x"}, "has ended")
		p.says(t, false, "job", m{"action": "list"}, `"name":"`+c.st.Name+`"`, "untrusted")
		if c.st.State == sandbox.JobRunning {
			continue
		}
		p.says(t, false, "job", m{"action": "remove", "job": c.st.Name}, "job "+c.st.Name+" removed")
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestJobWaitsEndWithTheirCalls, by whichever way a call ends, and a fault is no job that goes on.
func TestJobWaitsEndWithTheirCalls(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_exec", m{"command": "true"})
	file := p.keptJob(t, &sandbox.JobStatus{Name: "on", State: sandbox.JobRunning})
	j, err := p.opts.Home.Job(defaultName, "on")
	if err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancelLate := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancelLate()
	for _, ctx := range []context.Context{cancelled, late} {
		if text, err := p.jobs.waitForJob(ctx, j); !errors.Is(err, ctx.Err()) || text != "" {
			t.Errorf("%q, %v; want %v", text, err, ctx.Err())
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if text, err := p.jobs.waitForJob(t.Context(), j); !errors.Is(err, sandbox.ErrNoJob) || text != "" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestListedCallsAreDoneOrNot: the list says which, and a wait that is cancelled says so.
func TestListedCallsAreDoneOrNot(t *testing.T) {
	t.Parallel()
	c := newCalls()
	c.patience = 0
	gate := make(chan struct{})
	for _, work := range []func(context.Context) (string, error){
		func(context.Context) (string, error) { <-gate; return "one", nil },
		func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
	} {
		if _, err := c.do(t.Context(), "x", work); err != nil {
			t.Fatal(err)
		}
	}
	defer c.close()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := c.wait(cancelled, "call-2"); !errors.Is(err, context.Canceled) {
		t.Errorf("%q, %v", text, err)
	}
	close(gate)
	<-c.byName["call-1"].done
	if got, want := fmt.Sprint(c.list()), "[{call-1 x true} {call-2 x false}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if text, err := c.wait(t.Context(), "call-1"); text != "one" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if got := fmt.Sprint(c.list()); got != "[{call-2 x false}]" {
		t.Error(got)
	}
}

// TestEndedCallsHaveEnded: who ends a call goes on when nothing of it is left, also of one that is slow to end; and a call
// that there is no room to name is waited for.
func TestEndedCallsHaveEnded(t *testing.T) {
	t.Parallel()
	c := newCalls()
	c.patience = 0
	left := make(chan struct{}, 2*maxCalls)
	slow := func(ctx context.Context) (string, error) {
		<-ctx.Done()
		time.Sleep(20 * time.Millisecond) // for one that would go on meanwhile to be seen
		left <- struct{}{}
		return "", ctx.Err()
	}
	for range maxCalls {
		if _, err := c.do(t.Context(), "x", slow); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := c.do(ctx, "x", func(inner context.Context) (string, error) {
			close(began)
			<-inner.Done()
			return "", ctx.Err() // nil for one that was ended before its client gave it up
		})
		ended <- err
	}()
	<-began
	time.Sleep(20 * time.Millisecond) // as above
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("one too many was not waited for: %v", err)
	}
	if text, err := c.kill("call-1"); text != "call-1 ended" || err != nil || len(left) != 1 {
		t.Errorf("%q, %v, %d ended", text, err, len(left))
	}
	if _, err := c.get("call-1"); err == nil {
		t.Error("it is still there")
	}
	c.close()
	if len(left) != maxCalls || len(c.live) != 0 {
		t.Errorf("%d of %d ended, %d live", len(left), maxCalls, len(c.live))
	}
}
