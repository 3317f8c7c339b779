package netstacktest

import (
	"context"
	"sync"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

// aLongTimeAgo is a deadline that has passed.
var aLongTimeAgo = time.Unix(1, 0)

var _ netstack.Handler = (*Handler)(nil)

// Handler is a netstack.Handler of functions; nil ones reject. It keeps the
// limit events.
type Handler struct {
	TCP  func(context.Context, *netstack.TCPFlow)
	UDP  func(context.Context, *netstack.UDPFlow)
	Echo func(context.Context, *netstack.PingFlow)

	mu     sync.Mutex
	events []netstack.LimitEvent
}

// HandleTCP implements netstack.Handler.
func (h *Handler) HandleTCP(ctx context.Context, f *netstack.TCPFlow) {
	if h.TCP != nil {
		h.TCP(ctx, f)
	}
}

// HandleUDP implements netstack.Handler.
func (h *Handler) HandleUDP(ctx context.Context, f *netstack.UDPFlow) {
	if h.UDP != nil {
		h.UDP(ctx, f)
	}
}

// HandlePing implements netstack.Handler.
func (h *Handler) HandlePing(ctx context.Context, p *netstack.PingFlow) {
	if h.Echo == nil {
		p.Reject()
		return
	}
	h.Echo(ctx, p)
}

// Limited implements netstack.Handler.
func (h *Handler) Limited(e netstack.LimitEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

// Dropped implements netstack.Handler; Stats counts them.
func (h *Handler) Dropped(frameguard.Reason, int64) {}

// Events returns the limit events so far.
func (h *Handler) Events() []netstack.LimitEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]netstack.LimitEvent(nil), h.events...)
}
