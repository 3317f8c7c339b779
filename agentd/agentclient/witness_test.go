package agentclient

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

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
