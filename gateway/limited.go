package gateway

import (
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
)

// Limited implements netstack.Handler: a bound that was hit is a verdict too.
func (g *Gateway) Limited(l netstack.LimitEvent) {
	g.emit(audit.Event{
		Kind: audit.Limit, Time: l.Time, Proto: l.Protocol,
		SrcPort: l.Src.Port(), Dst: l.Dst.Addr(), Port: l.Dst.Port(),
		Action: egress.Deny.String(), Reason: egress.ReasonLimit.String(),
		Count:   uint64(l.Count),
		Message: "the bound " + string(l.Kind) + " is reached",
	})
}
