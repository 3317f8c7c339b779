package gateway

import (
	"errors"
	"net"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
)

// TestI1_SandboxesAboveTheBoundAreLogged: a sandbox that was turned away because there were too many connections left no line.
func TestI1_SandboxesAboveTheBoundAreLogged(t *testing.T) {
	t.Parallel()
	policy, err := policies.Parse("p.toml", []byte("version = 1\n[[ingress.allow]]\nname = \"app\"\nsandboxes = [\"web\"]\nports = [5432]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{ctx: t.Context()}
	g.policy.Store(policy)
	g.inbound = inbound{g: g, slots: make(chan struct{})} // which is full
	var lines []audit.Event
	g.floods = audit.NewFlood(func(e audit.Event) { lines = append(lines, e) }, nil)
	defer g.floods.Close()
	ours, theirs := net.Pipe()
	defer ours.Close()
	var answer error
	ServePeer(t.Context(), g, theirs, "web", 5432, func(err error) error { answer = err; return nil })
	if !errors.Is(answer, errPeerBound) {
		t.Errorf("answered %v", answer)
	}
	if len(lines) != 1 || lines[0].Kind != audit.PortFlow || lines[0].Action != "deny" || lines[0].Reason != "limit" || lines[0].Peer != "web" || lines[0].Port != 5432 || lines[0].Message != errPeerBound.Error() {
		t.Errorf("the log has %+v", lines)
	}
}
