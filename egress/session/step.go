package session

import (
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Action is what the executor does next. The zero value, Drop, ends the flow without an answer to the guest.
type Action uint8

const (
	// Drop ends the flow without an answer.
	Drop Action = iota
	// Reject ends a flow that was not answered yet: by a reset, or an ICMP error.
	Reject
	// Refuse ends an established connection with the Refusal.
	Refuse
	// NeedBytes completes the handshake and reads from the client; call Data.
	NeedBytes
	// NeedNames resolves Step.Name; call Resolved.
	NeedNames
	// Wait holds a denial for an approval, for at most Step.Timeout; call Answer or Expire.
	Wait
	// Dial opens the host's side; call Dialed.
	Dial
	// Relay completes the handshake unless that is done, and carries bytes both ways.
	Relay
	// Inspect hands the connection to secretproxy, with every byte that was read. Each of its requests goes
	// through Request.
	Inspect
	// ToDNS hands the flow to the resolver, whatever its destination.
	ToDNS
	// Continue changes nothing.
	Continue
	// End resets a flow that new rules no longer allow.
	End
)

var actionNames = [...]string{"drop", "reject", "refuse", "need bytes", "need names", "wait", "dial", "relay", "inspect", "to dns", "continue", "end"}

// String returns the action in words.
func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "invalid"
}

// Step is one order of a session.
type Step struct {
	Action Action
	// Decided says that the session's verdict is final and new: the executor writes one audit line for it.
	Decided bool
	// Skipped are the verdicts on addresses of a proxied name that were denied before this step: a line
	// for each.
	Skipped []Judged
	// Refusal is the answer to the client of a Refuse.
	Refusal Refusal
	// Name is what NeedNames resolves.
	Name hostname.Name
	// Via says that a Dial goes through the upstream proxy.
	Via bool
	// Timeout bounds a Wait.
	Timeout time.Duration
}

// Judged is a flow with its verdict.
type Judged struct {
	Flow    egress.Flow
	Verdict egress.Verdict
	// Target is where [hosts] leads a mapped flow.
	Target policies.Target
}

// Ending says whether more of the client's bytes may come.
type Ending uint8

const (
	// More means that more bytes may come.
	More Ending = iota
	// Silent means that the client closed its side, or sent nothing more within PeekTimeout.
	Silent
	// Gone means that the connection broke.
	Gone
)
