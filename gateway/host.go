package gateway

import (
	"net/netip"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
)

// followHost reads the host's own addresses before the first flow can ask for one, then keeps them
// current until the gateway closes.
func (g *Gateway) followHost() error {
	if err := g.classifier.Refresh(); err != nil {
		return err
	}
	g.watch.Go(func() {
		g.classifier.Follow(g.ctx, g.rejudge, func(err error) {
			g.emit(audit.Event{Kind: audit.Limit, Message: "the host's addresses: " + err.Error()})
		})
	})
	return nil
}

// owns asks the host's kernel whether it keeps what is sent to dst to itself.
func (g *Gateway) owns(proto egress.Proto, dst netip.AddrPort) bool {
	if g.cfg.Owns != nil {
		return g.cfg.Owns(proto, dst)
	}
	owns, err := egress.KernelOwns(proto, dst)
	if err != nil && g.unasked.CompareAndSwap(false, true) { // once: a guest may cause it again and again
		g.emit(audit.Event{Kind: audit.Limit, Message: "the host's routes: " + err.Error()})
	}
	return owns
}

// rejudge ends the flows, live and pending, whose destination became the host's.
func (g *Gateway) rejudge() {
	for _, f := range g.flows.all() {
		f.rejudge()
	}
}
