package gateway_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI5_NodesAddressesAreTheHosts: a pod's node is this machine, though its addresses are of no interface that the gateway
// sees, and no rule leads there. The twin knows of no node, and lets the guest connect.
func TestI5_NodesAddressesAreTheHosts(t *testing.T) {
	t.Parallel()
	for _, node := range [][]netip.Addr{nil, {netip.MustParseAddr(site)}} {
		w := gatewaytest.StartWith(t, gatewaytest.Policy(t, "[egress]\ndefault = \"public\"\n"), func(cfg *gateway.Config) {
			cfg.Node = node
			cfg.Link.Guest4, cfg.Link.Gateway4, cfg.Link.Prefix4 = netip.MustParseAddr("10.213.7.5"), netip.MustParseAddr("169.254.127.1"), 32
			cfg.Link.DHCP = false
		})
		w.Serve(site+":80", func(conn net.Conn) { _ = conn.Close() })
		conn, err := w.Dial(netip.MustParseAddr(site), 80)
		if (err == nil) != (node == nil) {
			t.Errorf("node %v: %v", node, err)
		}
		if err == nil {
			_ = conn.Close()
		}
		if ev := w.Audit.Wait(t, audit.FlowOpen, 1)[0]; ev.Reason != "host_address" && node != nil {
			t.Errorf("node %v: %+v", node, ev)
		}
		// The gateway of the pod's own subnet, and the pod's other neighbours, are private addresses as ever.
		if conn, err := w.Dial(netip.MustParseAddr("10.213.7.1"), 80); err == nil {
			_ = conn.Close()
			t.Error("the pod's gateway is reached")
		}
	}
}
