package dnsguard

import (
	"net/netip"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// Judge says which names may be looked up and which addresses a name may have.
// It does no I/O and is asked from many goroutines. Guard asks the judge that
// was set last; see reload.
type Judge interface {
	// DecideName says whether name may be looked up at all.
	DecideName(name hostname.Name) egress.Verdict
	// AllowsAddr says whether addr may be an answer for name.
	AllowsAddr(name hostname.Name, addr netip.Addr) egress.Verdict
	// Decide judges a flow. Guard asks it only whether QUIC may leave, to know
	// whether an HTTPS record may offer it.
	Decide(flow *egress.Flow) egress.Verdict
}

var _ Judge = (*egress.Engine)(nil)
