package netstack

import (
	"sync/atomic"

	"github.com/msb-project/msb/netstack/frameguard"
)

// counters holds one number for each reason; the set of reasons is closed, so
// that it is an array and not a map that frames can grow.
type counters struct {
	frames [2]atomic.Int64
	bytes  [2]atomic.Int64
	unsent atomic.Int64
	drops  [frameguard.Verdicts]atomic.Int64
	limits [len(limitKinds)]atomic.Int64
}

var limitKinds = [...]LimitKind{LimitTCPConnections, LimitTCPInFlight, LimitUDPFlows, LimitPings, LimitUDPQueue}

// Stats is a snapshot of what the stack counted since New.
type Stats struct {
	FramesFromGuest, FramesToGuest int64
	BytesFromGuest, BytesToGuest   int64
	// Unsent are frames that the guest did not read in time.
	Unsent int64
	// Drops has an entry for each reason that occurred.
	Drops map[frameguard.Reason]int64
	// Limited has an entry for each bound that was hit.
	Limited map[LimitKind]int64
	// TCPConnections and UDPFlows are those alive now.
	TCPConnections, UDPFlows int
}

func (c *counters) snapshot() Stats {
	s := Stats{
		FramesFromGuest: c.frames[FromGuest].Load(), FramesToGuest: c.frames[ToGuest].Load(),
		BytesFromGuest: c.bytes[FromGuest].Load(), BytesToGuest: c.bytes[ToGuest].Load(),
		Unsent: c.unsent.Load(),
		Drops:  map[frameguard.Reason]int64{}, Limited: map[LimitKind]int64{},
	}
	for i := range c.drops {
		if n := c.drops[i].Load(); n != 0 {
			s.Drops[frameguard.Verdict(i).Reason()] = n
		}
	}
	for i := range c.limits {
		if n := c.limits[i].Load(); n != 0 {
			s.Limited[limitKinds[i]] = n
		}
	}
	return s
}
