package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msb-project/msb/agentd/agentpb"
)

// TestServeTellsOfEachProcess once at each stage, and of the first word of its command alone.
func TestServeTellsOfEachProcess(t *testing.T) {
	t.Parallel()
	missing := func(s agentpb.Agent_ExecServer) error {
		return s.Send(exit(&agentpb.Exit{Code: 127, StartError: agentpb.StartError_START_ERROR_NOT_FOUND, Message: "none"}))
	}
	refused := func(agentpb.Agent_ExecServer) error { return status.Error(codes.InvalidArgument, "no such user") }
	for name, c := range map[string]struct {
		exec func(agentpb.Agent_ExecServer) error
		gone bool // the client leaves once the process runs
		want []string
	}{
		"ends":    {echoExec, false, []string{"0 sh", "1 sh", "2 sh 7"}},
		"missing": {missing, false, []string{"0 sh", "2 sh 127"}},
		"refused": {refused, false, []string{"0 sh", "2 sh"}},
		"gone":    {echoExec, true, []string{"0 sh", "1 sh", "2 sh"}},
	} {
		told := make(chan ExecEvent, 10)
		ctx, leave := context.WithCancel(t.Context())
		a := attachTold(t, dialFake(t, &fakeAgent{exec: c.exec}), func(e ExecEvent) { told <- e })
		o := ExecOptions{Argv: []string{"sh", "-c", "private"}, Stdin: strings.NewReader("x")}
		if c.gone {
			o.Stdin, o.OnStart = nil, leave
		}
		_, _ = a.Exec(ctx, o) // TestProxyNamesErrorsAlike
		leave()
		var got []string
		for {
			e := <-told
			line := fmt.Sprint(int(e.Stage), " ", e.Program)
			if e.Code != nil {
				line += fmt.Sprint(" ", *e.Code)
			}
			if got = append(got, line); e.ID != 1 {
				t.Errorf("%s: process %d", name, e.ID)
			}
			if e.Stage == ExecDied {
				break
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestServeTellsOfContainersProcesses: of a container's process its id, and the first word of what Exec starts.
func TestServeTellsOfContainersProcesses(t *testing.T) {
	t.Parallel()
	told := make(chan ExecEvent, 10)
	a := attachTold(t, dialFake(t, &fakeAgent{exec: echoExec}), func(e ExecEvent) { told <- e })
	for _, x := range []ContainerExec{{ID: "c1"}, {ID: "c2", ExecID: "e1", Process: &ContainerProcess{Args: []string{"ls", "private"}}}} {
		_, _ = a.Exec(t.Context(), ExecOptions{Container: &x, Stdin: strings.NewReader("x")})
		e := <-told
		want := ""
		if x.Process != nil {
			want = "ls"
		}
		if e.Stage != ExecCreated || e.Container != x.ID || e.Program != want {
			t.Errorf("%+v of %+v", e, x)
		}
		for e.Stage != ExecDied {
			e = <-told
		}
	}
}

// TestDetachedProcessesRunOn without their client, to their own end; what they write meanwhile is thrown away. The twin is
// "gone" in TestServeTellsOfEachProcess.
func TestDetachedProcessesRunOn(t *testing.T) {
	t.Parallel()
	left, told := make(chan struct{}), make(chan ExecEvent, 10)
	a := attachTold(t, dialFake(t, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{StdinWindow: 3}}}); err != nil {
			return err
		}
		if req, err := s.Recv(); err != nil || string(req.GetStdin()) != "x" {
			t.Errorf("the guest got %v, %v", req, err)
		}
		<-left
		for range 1000 { // more than any window
			if err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: make([]byte, agentpb.ChunkBytes)}}); err != nil {
				return err
			}
		}
		return s.Send(exit(&agentpb.Exit{Code: 9}))
	}}), func(e ExecEvent) { told <- e })
	in := io.MultiReader(strings.NewReader("x"), iotest.ErrReader(ErrDetach))
	if st, err := a.Exec(t.Context(), ExecOptions{Argv: []string{"sh"}, Stdin: in}); !errors.Is(err, ErrDetach) {
		t.Errorf("%+v, %v", st, err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	close(left)
	for e := range told {
		if e.Stage == ExecDied {
			if e.Code == nil || *e.Code != 9 {
				t.Errorf("%+v, want exit code 9", e)
			}
			break
		}
	}
}

// TestI13_DetachedProcessesEndWithTheServer, which waits for no guest.
func TestI13_DetachedProcessesEndWithTheServer(t *testing.T) {
	t.Parallel()
	a := attach(t, dialFake(t, &fakeAgent{exec: func(s agentpb.Agent_ExecServer) error {
		_, _ = s.Recv()
		err := s.Send(&agentpb.ExecResponse{Response: &agentpb.ExecResponse_Started{Started: &agentpb.Started{StdinWindow: 3}}})
		<-s.Context().Done()
		return err
	}}))
	if _, err := a.Exec(t.Context(), ExecOptions{Argv: []string{"sh"}, Stdin: iotest.ErrReader(ErrDetach)}); !errors.Is(err, ErrDetach) {
		t.Error(err)
	} // attach's clean-up waits for Serve
}
