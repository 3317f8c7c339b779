package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// forwards are the listeners in the guest that lead to the machine of an SSH client. They go around the gateway, so that
// the policy's [ssh] must allow each.
type forwards struct {
	s    *supervisor
	mu   sync.Mutex // held from the judgement until the listener is among open: a reload misses none
	open map[*forward]struct{}
}

// forward is one that is open.
type forward struct {
	to     agentclient.Back
	port   uint16
	cancel context.CancelFunc
}

// sshKeys are the keys of [ssh].
var sshKeys = map[agentclient.Back]struct {
	key     string
	allowed func(policies.SSH) bool
}{
	agentclient.BackAgent:   {"agent_forwarding", func(s policies.SSH) bool { return s.AgentForwarding }},
	agentclient.BackReverse: {"reverse_forwarding", func(s policies.SSH) bool { return s.ReverseForwarding }},
	agentclient.BackX11:     {"x11_forwarding", func(s policies.SSH) bool { return s.X11Forwarding }},
}

var errUnknownForward = errors.New("no such forwarding is known; update msb")

// judge says why the policy in force, or the operator's floor, doesn't allow what leads to to; nil if both do.
func (f *forwards) judge(to agentclient.Back) error {
	k, ok := sshKeys[to]
	if !ok {
		return errUnknownForward
	}
	now := f.s.ports.policyNow()
	ok, byFloor := now.AllowsSSH(k.allowed)
	if ok && f.s.floor != nil {
		ok, _ = f.s.floor.AllowsSSH(k.allowed)
		byFloor = !ok
	}
	switch {
	case ok:
		return nil
	case byFloor:
		return fmt.Errorf("the operator's floor has no %s = true in [ssh]", k.key)
	}
	return fmt.Errorf("the policy has no %s = true in [ssh]", k.key)
}

// admit asks whether a client may have a listener that leads to to, at that port. It ends with the returned context, and
// done is called at its end.
func (f *forwards) admit(ctx context.Context, to agentclient.Back, port uint16) (context.Context, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.judge(to)
	f.tell(to, port, err)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	one := &forward{to, port, cancel}
	if f.open == nil {
		f.open = map[*forward]struct{}{}
	}
	f.open[one] = struct{}{}
	return ctx, func() {
		cancel()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.open, one)
	}, nil
}

// again judges those that are open by a policy that has just come into force.
func (f *forwards) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for one := range f.open {
		if err := f.judge(one.to); err != nil {
			f.tell(one.to, one.port, err)
			one.cancel()
			delete(f.open, one)
		}
	}
}

func (f *forwards) tell(to agentclient.Back, port uint16, refused error) {
	e := audit.Event{Kind: audit.SSHForward, Action: "allow", Port: port, Rule: "ssh." + sshKeys[to].key}
	if refused != nil {
		e.Action, e.Message = "deny", refused.Error()
	}
	f.s.emit(e)
}
