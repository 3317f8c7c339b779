package dnsguard

import (
	"net/netip"
	"time"

	"github.com/msb-project/msb/egress"
)

// Outcome is what became of a question, for statistics and explanations.
type Outcome uint8

// The outcomes. The zero value is none.
const (
	// OutcomeAnswered is an answer with records, as filtered.
	OutcomeAnswered Outcome = iota + 1
	// OutcomeEmpty is a name that has no record of the type (NODATA).
	OutcomeEmpty
	// OutcomeNoName is a name that doesn't exist (NXDOMAIN).
	OutcomeNoName
	// OutcomeLocal is an answer of our own: [hosts] or PTR.
	OutcomeLocal
	// OutcomeRefusedName is a name that the policy doesn't let out.
	OutcomeRefusedName
	// OutcomeRefusedQuery is a question of a class, type or form that is never
	// answered.
	OutcomeRefusedQuery
	// OutcomeRebinding is an answer of which nothing was left.
	OutcomeRebinding
	// OutcomeLimited is a question above a bound.
	OutcomeLimited
	// OutcomeFailed is a failure of every upstream.
	OutcomeFailed
)

// String returns "answered", "empty" and so on.
func (o Outcome) String() string {
	switch o {
	case OutcomeAnswered:
		return "answered"
	case OutcomeEmpty:
		return "empty"
	case OutcomeNoName:
		return "no such name"
	case OutcomeLocal:
		return "answered locally"
	case OutcomeRefusedName:
		return "name refused"
	case OutcomeRefusedQuery:
		return "query refused"
	case OutcomeRebinding:
		return "every address removed"
	case OutcomeLimited:
		return "above a limit"
	case OutcomeFailed:
		return "upstream failed"
	}
	return "none"
}

// Explanation says what answer a guest got and why.
type Explanation struct {
	Outcome Outcome
	// EDE is the Extended DNS Error (RFC 8914) and Text its text; the guest sees
	// them if its query had EDNS. HasEDE tells code 0 ("Other") from none.
	EDE    uint16
	HasEDE bool
	Text   string
	// Verdict is the judgement on the name; its zero value if none was asked
	// for.
	Verdict egress.Verdict
	// Removed are the addresses that were taken out of the answer.
	Removed []netip.Addr
	// Upstream is the server that answered, as the policy writes it.
	Upstream string
	// Cached says that nothing was asked upstream.
	Cached bool
	// TTL is that of the guest's answer.
	TTL     time.Duration
	Latency time.Duration
}
