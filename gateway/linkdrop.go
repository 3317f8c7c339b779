package gateway

import (
	"maps"
	"slices"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
)

// recordDrops writes down what the frame guard threw away over the gateway's life: a line for each
// reason. A line for each frame would let a guest fill the disk.
func (g *Gateway) recordDrops() {
	drops := g.stack.Stats().Drops
	for _, reason := range slices.Sorted(maps.Keys(drops)) {
		if reason == netstack.DropQuiet {
			continue // what every guest sends and nobody misses: multicast of its own stack
		}
		g.emit(audit.Event{
			Kind: audit.LinkDrop, Action: egress.Deny.String(), Count: uint64(drops[reason]),
			Message: "frames dropped by the guard: " + string(reason),
		})
	}
}
