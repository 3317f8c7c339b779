package sandbox

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestExecErrorsComeAtOnce: after each one there was a wait of 5 s for the supervisor's account of an end
// that had not come.
func TestExecErrorsComeAtOnce(t *testing.T) {
	t.Parallel()
	ours, theirs, err := state.SocketPair()
	must(t, err)
	defer func() { _ = theirs.Close() }()
	waited := false
	s := &Sandbox{over: make(chan struct{}), after: func(time.Duration) <-chan time.Time {
		waited = true
		now := make(chan time.Time, 1)
		now <- time.Time{}
		return now
	}}
	s.client, err = agentclient.Attach(ours)
	must(t, err)
	if _, err := s.Exec(t.Context(), ExecOptions{}); !errors.Is(err, agentclient.ErrRefused) || waited {
		t.Errorf("%v, waited %v; want ErrRefused at once", err, waited)
	}
	must(t, s.client.Close())
	if _, err := s.Exec(t.Context(), ExecOptions{Argv: []string{"true"}}); err == nil || !waited {
		t.Errorf("%v, waited %v; of a session that ended the supervisor's account is awaited", err, waited)
	}
}

// TestI12_SilentSupervisorsAreNamed: a stopped one held msb exec for ever.
func TestI12_SilentSupervisorsAreNamed(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	l, err := state.ListenControl(namedPath(h, "web"))
	must(t, err)
	defer func() { _ = l.Close() }()
	h.answer = 20 * time.Millisecond
	if _, err := h.Connect(t.Context(), "web"); !errors.Is(err, agentclient.ErrTimeout) || KindOf(err) != KindAgent || !strings.Contains(err.Error(), "msb stop web") {
		t.Errorf("%v; want ErrTimeout and the remedy", err)
	}
}

// TestI12_SilentSupervisorsHoldUpNoFigures of others: each has its Problem. The twin is a sandbox that doesn't run.
func TestI12_SilentSupervisorsHoldUpNoFigures(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.answer = 20 * time.Millisecond
	for _, name := range []string{"a", "b", "off"} {
		must(t, aNamed(t, h, name))
	}
	for _, name := range []string{"a", "b"} {
		l, err := state.ListenControl(namedPath(h, name))
		must(t, err)
		defer func() { _ = l.Close() }()
		must(t, state.WriteJSON(namedPath(h, name), state.InfoFile, state.RunRecord{Supervisor: state.Identify(os.Getpid()), Info: &Info{ID: name}}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one that is waited for without end fails the test
	defer cancel()
	for _, names := range [][]string{nil, {"a", "b"}} {
		all, err := h.Usage(ctx, names...)
		if err != nil || len(all) != 2 {
			t.Fatalf("%q: %+v, %v; want both", names, all, err)
		}
		for i, name := range []string{"a", "b"} {
			if all[i].Name != name || !strings.Contains(all[i].Problem, "did not answer within 20ms") {
				t.Errorf("%q: %+v; want the problem of %s", names, all[i], name)
			}
		}
	}
	for name, want := range map[string]error{"off": ErrNotRunning, "nobody": ErrNoSandbox, "../a": ErrName} {
		if _, err := h.Usage(ctx, "a", name); !errors.Is(err, want) {
			t.Errorf("%s: %v; want %v", name, err, want)
		}
	}
}

// TestI12_MissingEndsAreReported by stop, if the run was ready.
func TestI12_MissingEndsAreReported(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	must(t, aNamed(t, h, "web"))
	if err := checkEnd(h, "web", true); err == nil || !strings.Contains(err.Error(), state.EndFile) {
		t.Errorf("%v; want the file named", err)
	}
	must(t, checkEnd(h, "web", false))
	must(t, state.WriteJSON(namedPath(h, "web"), state.EndFile, End{Time: time.Now()}))
	must(t, checkEnd(h, "web", true))
}

// TestI13_FailedStartsLeaveNoSandbox: it was made for the start. The twins are one that was there before, and
// one that another command removed and made again meanwhile. Not parallel: it forks.
func TestI13_FailedStartsLeaveNoSandbox(t *testing.T) {
	h, root := newHome(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "file"), nil, 0o600))
	cfg := Config{Name: "web", Home: h.Dir(), Program: "/bin/false", Image: "dir:" + root, Disk: 64 << 20}
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrSupervisor) {
		t.Fatalf("%v, want ErrSupervisor", err)
	}
	if all, err := os.ReadDir(namedPath(h, "")); err != nil || len(all) > 0 {
		t.Errorf("%v stay, %v", all, err)
	}
	must(t, Create(t.Context(), cfg))
	if _, err := Start(t.Context(), cfg); !errors.Is(err, ErrExists) {
		t.Errorf("%v, want ErrExists", err)
	}
	if _, err := StartNamed(t.Context(), "web", StartOptions{Home: h.Dir(), Program: "/bin/false"}); !errors.Is(err, ErrSupervisor) {
		t.Errorf("%v, want ErrSupervisor", err)
	}
	old, err := os.Open(namedPath(h, "web", state.LockFile))
	must(t, err)
	defer func() { _ = old.Close() }()
	must(t, h.Remove(t.Context(), "web"))
	must(t, aNamed(t, h, "web"))
	must(t, removeMade(t.Context(), h, "web", old))
	if _, err := h.Inspect("web"); err != nil {
		t.Errorf("another one was removed: %v", err)
	}
}

// TestNamedSupervisorsLeaveTheCallersDirectory. Not parallel: it forks.
func TestNamedSupervisorsLeaveTheCallersDirectory(t *testing.T) {
	for name, want := range map[string]string{"web": "/", "": ""} {
		out := filepath.Join(t.TempDir(), "out")
		program := filepath.Join(t.TempDir(), "program")
		must(t, os.WriteFile(program, []byte("#!/bin/sh\npwd > "+out+"\n"), 0o700))
		h := newHome(t)
		run, err := newRun(h)
		must(t, err)
		s := &Sandbox{name: name, home: h, run: run}
		must(t, s.launch(&Config{Program: program}, &state.Plan{}))
		_ = s.cmd.Wait()
		must(t, s.client.Close())
		b, err := os.ReadFile(out)
		must(t, err)
		if want == "" {
			want, err = os.Getwd()
			must(t, err)
		}
		if got := strings.TrimSpace(string(b)); got != want {
			t.Errorf("name %q: it works in %s, want %s", name, got, want)
		}
	}
}

// TestI11_SilentSupervisorsKeepNoConnection: whoever asks many of them, and again, would run out of descriptors.
func TestI11_SilentSupervisorsKeepNoConnection(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.answer = 20 * time.Millisecond
	must(t, aNamed(t, h, "web"))
	l, err := state.ListenControl(namedPath(h, "web"))
	must(t, err)
	defer func() { _ = l.Close() }()
	must(t, state.WriteJSON(namedPath(h, "web"), state.InfoFile, state.RunRecord{Info: &Info{ID: "web"}}))
	for what, do := range map[string]func() error{
		"a session": func() error { _, err := h.Connect(t.Context(), "web"); return err },
		"figures": func() error {
			all, err := h.Usage(t.Context(), "web")
			if err == nil && all[0].Problem != "" {
				err = agentclient.ErrTimeout
			}
			return err
		},
	} {
		if err := do(); !errors.Is(err, agentclient.ErrTimeout) {
			t.Errorf("%s: %v, want ErrTimeout", what, err)
		}
		conn, err := l.Accept()
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: the connection stays: %v", what, err)
		}
		must(t, conn.Close())
	}
}

// TestSessionsEndWithTheSandboxsReason, and are of the run that was recorded.
func TestSessionsEndWithTheSandboxsReason(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		end  End
		want Kind
		says string
	}{
		"by itself": {End{Kind: KindIdle, Message: "nobody used it"}, KindIdle, "nobody used it"},
		"a stop":    {End{}, KindSandbox, "web was stopped meanwhile"},
	} {
		h := newHome(t)
		must(t, aNamed(t, h, "web"))
		l, err := state.ListenControl(namedPath(h, "web"))
		must(t, err)
		must(t, state.WriteJSON(namedPath(h, "web"), state.InfoFile, state.RunRecord{Info: &Info{ID: "run"}}))
		srv := grpc.NewServer()
		agentpb.RegisterAgentServer(srv, &ending{})
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		s, err := h.Connect(t.Context(), "web")
		must(t, err)
		if s.Info().ID != "run" {
			t.Errorf("%s: a session of %+v", what, s.Info())
		}
		must(t, state.WriteJSON(namedPath(h, "web"), state.EndFile, c.end))
		srv.Stop()
		<-served
		<-s.Done()
		if err := s.Err(); KindOf(err) != c.want || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: of kind %q: %v", what, KindOf(err), err)
		}
		must(t, s.Close())
	}
}
