package egress

import (
	"net/netip"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Action is what the gateway does next. The zero value denies.
type Action uint8

const (
	// Deny ends the flow: RST, ICMP administratively-prohibited, a TLS alert or
	// a 403, by how far it got.
	Deny Action = iota
	// Allow relays the flow (or forwards the request) as it is.
	Allow
	// Peek means that the address alone can't decide: read the ClientHello or
	// the request's head, and judge again at StageName. Nothing is dialled
	// before that.
	Peek
	// Inspect hands the connection to secretproxy, which judges each request
	// at StageRequest.
	Inspect
)

// String returns "deny", "allow", "peek" or "inspect".
func (a Action) String() string {
	switch a {
	case Deny:
		return "deny"
	case Allow:
		return "allow"
	case Peek:
		return "peek"
	case Inspect:
		return "inspect"
	}
	return "invalid"
}

// Verdict is the answer to a Flow, a name or an address. It is a plain value,
// made without allocation.
type Verdict struct {
	Action Action
	// Rule is the name of the rule that decided; "" if none did.
	Rule   string
	Reason Reason
	// Class is of the destination address; ClassInvalid in a verdict on a name.
	Class Class
	// WouldDeny marks what report mode let through: Action is Allow (or leads
	// there), Rule and Reason are those of the denial.
	WouldDeny bool
	// Protocol is the protocol of the rule that decided.
	Protocol policies.Protocol
	// Special says that an address which isn't public may be dialled: a rule opens
	// it, or [hosts] leads there.
	Special bool
	// Range is the range of the rule that opens such an address; Reach gives it to
	// the fuse.
	Range netip.Prefix
	// Floor says that the operator's floor decided, not the sandbox's policy.
	Floor bool
	// Why is the sentence that the rule's author gave.
	Why string
	// Name and Addr are what the verdict is about, as far as they were known.
	Name hostname.Name
	Addr netip.Addr
}

// Allowed reports whether the flow goes on, be it for a closer look.
func (v Verdict) Allowed() bool { return v.Action != Deny }

// Message returns the verdict as a sentence for people: what was decided about
// what, by which rule, and why. It holds no text that a guest could choose
// freely: names are normalised, addresses are formatted, rules are the
// operator's.
func (v Verdict) Message() string {
	var b strings.Builder
	switch {
	case v.WouldDeny:
		b.WriteString("let through in report mode: ")
	case v.Action == Deny:
		b.WriteString("denied: ")
	}
	if s := v.subject(); s != "" {
		b.WriteString(s + ": ")
	}
	if v.Floor && v.Reason == ReasonNoRule {
		b.WriteString("no allow rule of the operator's floor covers it; only the operator can add one")
	} else {
		b.WriteString(v.Reason.Sentence())
	}
	if v.Reason.aboutClass() && v.Class != ClassInvalid {
		b.WriteString(" (" + v.Class.Sentence() + ")")
	}
	if v.Rule != "" {
		b.WriteString(" [rule " + v.Rule + "]")
	}
	if v.Floor {
		b.WriteString(" [operator's floor]")
	}
	if v.Why != "" {
		b.WriteString(": " + v.Why)
	}
	return b.String()
}

func (v Verdict) subject() string {
	switch {
	case !v.Name.IsZero() && v.Addr.IsValid():
		return v.Name.Display() + " at " + v.Addr.String()
	case !v.Name.IsZero():
		return v.Name.Display()
	case v.Addr.IsValid():
		return v.Addr.String()
	}
	return ""
}
