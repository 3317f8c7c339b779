package gateway_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI16_ReloadsDuringVerdictsCount puts rules in force while a flow is judged by the old ones: nothing of it
// leaves. In the twin they allow it.
func TestI16_ReloadsDuringVerdictsCount(t *testing.T) {
	t.Parallel()
	const open = "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nports = [7]\n[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"icmp\"\n" +
		"[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nports = [7]\nprotocol = \"udp\"\n"
	dst := netip.MustParseAddrPort(site + ":7")
	for proto, try := range map[string]func(context.Context, *gatewaytest.World){
		"tcp": func(ctx context.Context, w *gatewaytest.World) {
			if c, err := w.Guest.DialTCP(ctx, dst); err == nil {
				_ = c.Close()
			}
		},
		"udp": func(_ context.Context, w *gatewaytest.World) {
			c, err := w.Guest.DialUDP(dst)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = c.Write([]byte("x"))
			_ = c.Close()
		},
		"icmp": func(ctx context.Context, w *gatewaytest.World) { _ = w.Guest.Ping(ctx, dst.Addr(), []byte("x")) },
	} {
		for _, next := range []string{"", open} {
			t.Run(proto+map[bool]string{true: "/denied", false: "/allowed (twin)"}[next == ""], func(t *testing.T) {
				t.Parallel()
				var once sync.Once
				var w *gatewaytest.World
				w = gatewaytest.StartWith(t, gatewaytest.Policy(t, open), func(c *gateway.Config) {
					c.Owns = func(egress.Proto, netip.AddrPort) bool { // asked in the middle of each verdict
						once.Do(func() {
							if err := w.Gateway.Reload(gatewaytest.Policy(t, next)); err != nil {
								t.Error(err)
							}
						})
						return false
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
				defer cancel()
				done := make(chan struct{})
				go func() { defer close(done); try(ctx, w) }()
				w.Audit.Wait(t, audit.FlowClose, 1)
				cancel()
				<-done
				if d := w.Dialled(); (len(d) > 0) != (next != "") {
					t.Errorf("dialled %v", d)
				}
			})
		}
	}
}
