package gateway

import "github.com/msb-project/msb/audit"

// followHost reads the host's own addresses before the first flow can ask for one, then keeps them
// current until the gateway closes.
func (g *Gateway) followHost() error {
	if err := g.classifier.Refresh(); err != nil {
		return err
	}
	g.watch.Go(func() {
		g.classifier.Follow(g.ctx, func(err error) {
			g.emit(audit.Event{Kind: audit.Limit, Message: "the host's addresses: " + err.Error()})
		})
	})
	return nil
}
