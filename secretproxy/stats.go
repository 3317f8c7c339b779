package secretproxy

import "sync/atomic"

// Stats are counts since New.
type Stats struct {
	// Connections is all handed over; Refused those that ended before a request
	// was parsed (handshake, unreadable head).
	Connections, Refused uint64
	// Requests is all that were parsed; Denied and Violations those that were
	// answered here.
	Requests, Denied, Violations uint64
	// Swaps is requests with a value put in; Masked is values taken out of
	// responses.
	Swaps, Masked uint64
	// Held is the bytes that the proxy holds for the sandbox now, Values those of them that the spellings of its
	// values take; Full is how often there was no room for more.
	Held, Values int64
	Full         uint64
	// UpstreamErrors is requests answered with 502.
	UpstreamErrors uint64
}

type counters struct {
	connections, refused, requests, denied, violations, swaps, masked, upstreamErrors atomic.Uint64
}

// Stats returns the counts.
func (p *Proxy) Stats() Stats {
	c := &p.counters
	return Stats{
		Connections: c.connections.Load(), Refused: c.refused.Load(),
		Requests: c.requests.Load(), Denied: c.denied.Load(), Violations: c.violations.Load(),
		Swaps: c.swaps.Load(), Masked: c.masked.Load(), UpstreamErrors: c.upstreamErrors.Load(),
		Held: p.memory.Used(), Values: p.known.held.Size(), Full: p.memory.Refused(),
	}
}
