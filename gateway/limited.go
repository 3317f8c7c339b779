package gateway

import (
	"sync/atomic"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

// Limited implements netstack.Handler: a bound that was hit is a verdict too.
func (g *Gateway) Limited(l netstack.LimitEvent) {
	g.floods.Emit(audit.Event{
		Kind: audit.Limit, Time: l.Time, Proto: l.Protocol,
		SrcPort: l.Src.Port(), Dst: l.Dst.Addr(), Port: l.Dst.Port(),
		Action: egress.Deny.String(), Reason: egress.ReasonLimit.String(),
		Message: "the bound " + string(l.Kind) + " is reached",
	})
}

// manySums is how many frames with wrong checksums are no longer a damaged one or two: they come from the guest's
// settings, or its network does not work at all.
const manySums = 16

// Dropped implements netstack.Handler.
func (g *Gateway) Dropped(reason frameguard.Reason, n int64) {
	g.floods.Emit(audit.Event{
		Kind: audit.LinkDrop, Action: egress.Deny.String(), Message: droppedBy + string(reason), Count: uint64(n),
	})
	switch reason {
	case frameguard.DropPartial.Reason():
		if many(&g.partialSums, n) {
			g.emit(audit.Event{Kind: audit.LinkDrop, Message: "the guest leaves checksums to its network card, so that nothing it sends arrives: " +
				"start `msb gateway` with --offload, or turn checksum offload off in the guest or its VMM"})
		}
	case frameguard.DropChecksum.Reason():
		if many(&g.wrongSums, n) {
			g.emit(audit.Event{Kind: audit.LinkDrop, Message: "many frames of the guest have wrong checksums and were thrown away: " +
				"look at its network card's offloads; --pcap FILE records the frames"})
		}
	}
}

// many adds n, and reports whether that made it manySums.
func many(sums *atomic.Int64, n int64) bool {
	now := sums.Add(n)
	return now >= manySums && now-n < manySums
}

const droppedBy = "frames dropped by the guard: "

// recordQuiet writes one line at the end about the ordinary frames that were dropped: those to groups, and segments
// that were under way when their connection was reset. Every guest sends some, so that a line for each would hide
// others. A guest that sends many was looking for something.
func recordQuiet(g *Gateway) {
	drops := g.stack.Stats().Drops
	for _, v := range []frameguard.Verdict{frameguard.DropMulticast, frameguard.DropStray} {
		if n := drops[v.Reason()]; n > 0 {
			g.emit(audit.Event{
				Kind: audit.LinkDrop, Action: egress.Deny.String(), Message: droppedBy + string(v.Reason()), Count: uint64(n),
			})
		}
	}
}
