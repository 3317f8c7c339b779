package session

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// Reopen judges a further connection that secretproxy opens to the destination of an inspected flow, perhaps long
// after the flow began. name is the host of the requests, zero for a literal address.
func Reopen(rules *Rules, names Names, name hostname.Name, dst netip.AddrPort, tls bool) (*Session, Step) {
	s := &Session{rules: rules, names: names}
	s.newFlow(egress.TCP, netip.AddrPort{}, dst)
	if !s.flow.Mapped {
		if !name.IsZero() {
			s.flow.Pinned = []hostname.Name{name}
		}
		if s.verdict = s.decide(); !s.verdict.Allowed() {
			return s, Step{Action: Reject}
		}
	}
	s.flow.Name, s.state = name, stateDialing
	return s, Step{Action: Dial, Via: tls && s.viaUsed()}
}

// ViaName is the name that the upstream proxy is asked for; zero where it is asked for the address: a name
// that is not pinned to it was chosen by the guest.
func (j *Judged) ViaName() hostname.Name {
	if slices.Contains(j.Flow.Pinned, j.Flow.Name) {
		return j.Flow.Name
	}
	return hostname.Name{}
}
