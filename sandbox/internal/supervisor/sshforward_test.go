package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox/internal/journal"
	"github.com/msb-project/msb/sandbox/internal/state"
)

const allSSH = "[ssh]\nagent_forwarding = true\nreverse_forwarding = true\nx11_forwarding = true\n"

// forwardLines are the lines about forwardings in a sandbox's log, which it closes.
func forwardLines(t *testing.T, s *supervisor) (lines []string) {
	t.Helper()
	must(t, s.records.Close(nil))
	text, err := os.ReadFile(s.plan.Audit)
	must(t, err)
	for line := range bytes.Lines(text) {
		var e audit.Event
		must(t, json.Unmarshal(line, &e))
		if e.Kind == audit.SSHForward {
			lines = append(lines, fmt.Sprintf("%s %s %d", e.Action, e.Rule, e.Port))
			if (e.Action == "deny") != (e.Message != "") {
				t.Errorf("%s says %q", lines[len(lines)-1], e.Message)
			}
		}
	}
	return lines
}

// TestI15_WaysBackNeedPolicyAndFloor asks for each way back under policies and floors, with a network and without. Each
// answer is one line of the log.
func TestI15_WaysBackNeedPolicyAndFloor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy, floor string // "-" is no floor
		allowed       []agentclient.Back
		says          string
	}{
		{"", "-", nil, "the policy has no"},
		{allSSH, "-", []agentclient.Back{agentclient.BackAgent, agentclient.BackReverse, agentclient.BackX11}, ""},
		{"[ssh]\nreverse_forwarding = true\n", "-", []agentclient.Back{agentclient.BackReverse}, "the policy has no"},
		{"[ssh]\nx11_forwarding = true\nagent_forwarding = false\n", "-", []agentclient.Back{agentclient.BackX11}, "the policy has no"},
		{allSSH, "", nil, "the operator's floor has no"},
		{allSSH, "[ssh]\nagent_forwarding = true\n", []agentclient.Back{agentclient.BackAgent}, "the operator's floor has no"},
		{"", allSSH, nil, "the policy has no"},
	} {
		s := newSupervisor(&state.Plan{Dir: t.TempDir()}, nil, nil)
		s.plan.Audit = filepath.Join(s.plan.Dir, "audit.jsonl")
		s.policy = gatewaytest.Policy(t, c.policy)
		if c.floor != "-" {
			s.floor = gatewaytest.Policy(t, c.floor)
		}
		var err error
		s.records, err = journal.OpenRecords(journal.RecordFiles{Audit: s.plan.Audit})
		must(t, err)
		var want []string
		for _, to := range []agentclient.Back{agentclient.BackAgent, agentclient.BackReverse, agentclient.BackX11} {
			ctx, done, err := s.ssh.admit(t.Context(), to, 7)
			action := "deny"
			if slices.Contains(c.allowed, to) {
				action = "allow"
				must(t, err)
				if ctx.Err() != nil || len(s.ssh.open) != 1 {
					t.Errorf("%+v: %s is closed: %d are open", c, to, len(s.ssh.open))
				}
				done()
				if ctx.Err() == nil || len(s.ssh.open) != 0 {
					t.Errorf("%+v: %s is open when it has ended", c, to)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), sshKeys[to].key) {
				t.Errorf("%+v: %s: %v", c, to, err)
			}
			want = append(want, action+" ssh."+sshKeys[to].key+" 7")
		}
		if _, _, err := s.ssh.admit(t.Context(), 0, 0); err == nil {
			t.Error("what isn't known is allowed")
		}
		if got := forwardLines(t, s); !slices.Equal(got[:min(len(got), 3)], want) {
			t.Errorf("%+v: the log has %q, want %q", c, got, want)
		}
	}
}

// TestI15_ReloadsEndWaysBack: a new policy ends what it no longer allows, and nothing else. One that is refused ends none.
func TestI15_ReloadsEndWaysBack(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{Dir: t.TempDir()}, state.NewStatusLines(io.Discard), nil)
	s.plan.Audit = filepath.Join(s.plan.Dir, "audit.jsonl")
	var err error
	s.records, err = journal.OpenRecords(journal.RecordFiles{Audit: s.plan.Audit})
	must(t, err)
	floor := gatewaytest.Policy(t, allSSH)
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, allSSH), func(c *gateway.Config) {
		c.Audit, c.Floor = reloads{c.Audit, s}, floor
	})
	s.gateway, s.floor = w.Gateway, floor
	agent, _, err := s.ssh.admit(t.Context(), agentclient.BackAgent, 0)
	must(t, err)
	reverse, _, err := s.ssh.admit(t.Context(), agentclient.BackReverse, 8)
	must(t, err)
	if err := w.Gateway.Reload(policies.Default()); err != nil {
		t.Fatal(err)
	}
	if agent.Err() == nil || reverse.Err() == nil || len(s.ssh.open) != 0 {
		t.Error("what the new policy doesn't allow is open")
	}
	must(t, w.Gateway.Reload(gatewaytest.Policy(t, "[ssh]\nreverse_forwarding = true\n")))
	if _, _, err := s.ssh.admit(t.Context(), agentclient.BackAgent, 0); err == nil {
		t.Error("the policy of before is in force")
	}
	reverse, _, err = s.ssh.admit(t.Context(), agentclient.BackReverse, 8)
	must(t, err)
	must(t, w.Gateway.Reload(gatewaytest.Policy(t, allSSH)))
	bad := gatewaytest.Policy(t, "")
	bad.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP}} // which the floor doesn't have
	if err := w.Gateway.Reload(bad); err == nil {
		t.Error("a policy that can't hold was taken")
	}
	if reverse.Err() != nil || len(s.ssh.open) != 1 {
		t.Error("what is allowed was ended")
	}
	want := []string{
		"allow ssh.agent_forwarding 0", "allow ssh.reverse_forwarding 8", "deny ssh.agent_forwarding 0", "deny ssh.reverse_forwarding 8",
		"deny ssh.agent_forwarding 0", "allow ssh.reverse_forwarding 8",
	}
	got := forwardLines(t, s)
	if len(got) > 4 {
		slices.Sort(got[2:4]) // those that a reload ends have no order
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}

// TestI15_SSHServersAskThePolicy: the SSH server's way to the guest is closed where the policy closes it, and while the
// guest is paused. There is no agent here: what would be asked of it fails the test.
func TestI15_SSHServersAskThePolicy(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{Dir: t.TempDir()}, nil, nil)
	s.plan.Audit = filepath.Join(s.plan.Dir, "audit.jsonl")
	s.policy = gatewaytest.Policy(t, "")
	var err error
	s.records, err = journal.OpenRecords(journal.RecordFiles{Audit: s.plan.Audit})
	must(t, err)
	g := sshGuest{s}
	for to := range sshKeys {
		if _, err := g.Listen(t.Context(), agentclient.ListenOptions{Back: to}); err == nil || !strings.Contains(err.Error(), sshKeys[to].key) {
			t.Errorf("%s: %v", to, err)
		}
	}
	s.pause.on.Store(true)
	_, execErr := g.Exec(t.Context(), agentclient.ExecOptions{})
	_, connectErr := g.Connect(t.Context(), netip.AddrPort{})
	_, listenErr := g.Listen(t.Context(), agentclient.ListenOptions{Back: agentclient.BackAgent})
	for _, err := range []error{execErr, connectErr, listenErr} {
		if !errors.Is(err, agentclient.ErrPaused) {
			t.Errorf("paused: %v", err)
		}
	}
	if err := g.serve(nil, nil); err == nil || !strings.Contains(err.Error(), "a name") {
		t.Errorf("without a name: %v", err)
	}
	if got := forwardLines(t, s); len(got) != len(sshKeys) {
		t.Errorf("the log has %q", got)
	}
}

// TestListenersThatFailAreNotOpen: the guest of a sandbox whose policy allows all can't listen. What is not open is not judged
// again.
func TestListenersThatFailAreNotOpen(t *testing.T) {
	t.Parallel()
	s := callable(t, t.TempDir(), "web", "version = 1\n"+allSSH)
	for to := range sshKeys {
		if _, err := (sshGuest{s.supervisor}).Listen(t.Context(), agentclient.ListenOptions{Back: to}); err == nil || len(s.ssh.open) != 0 {
			t.Errorf("%s: %v, %d are open", to, err, len(s.ssh.open))
		}
	}
}

// TestSSHEndsWithTheSandbox: a client of a sandbox that ends is told that it has ended, and not that all is well.
func TestSSHEndsWithTheSandbox(t *testing.T) {
	t.Parallel()
	s := newSupervisor(&state.Plan{Spec: state.Spec{Name: "web"}, Dir: t.TempDir()}, nil, nil)
	s.ctx, s.cancel = context.WithCancelCause(t.Context())
	s.sshd.Dir = s.plan.Dir
	near, far := net.Pipe()
	defer func() { _ = near.Close() }()
	s.cancel(errCallerGone)
	if err := (sshGuest{s}).serve(far, nil); !errors.Is(err, agentclient.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestCommandsOfSSHAreLogged, as those of other clients are.
func TestCommandsOfSSHAreLogged(t *testing.T) {
	t.Parallel()
	s, info := superviseFake(t, &guestVM{}, newPlan(t, t.TempDir(), "web"))
	if info == nil {
		t.Fatal(<-s.ended)
	}
	if _, err := (sshGuest{s.supervisor}).Exec(t.Context(), agentclient.ExecOptions{Argv: []string{"sh"}}); err == nil {
		t.Error("a guest that runs nothing runs it")
	}
	s.cancel(errCallerGone)
	must(t, <-s.ended)
	text, err := os.ReadFile(s.plan.Audit)
	must(t, err)
	if !strings.Contains(string(text), `"program":"sh"`) {
		t.Errorf("the log has %s", text)
	}
}
