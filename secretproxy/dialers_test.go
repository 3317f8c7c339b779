package secretproxy

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// TestTLSHasItsOwnDialer: what goes by [tls] via is TLS, and nothing else.
func TestTLSHasItsOwnDialer(t *testing.T) {
	t.Parallel()
	var plain, tls atomic.Int32
	refuse := func(count *atomic.Int32) func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) {
		return func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) {
			count.Add(1)
			return nil, net.ErrClosed
		}
	}
	w := newWorld(t, echo, func(_ *policies.Policy, c *Config) { c.Dial, c.DialTLS = refuse(&plain), refuse(&tls) })
	if resp, _ := do(t, w.client(apiHost, apiAddr, false), request(t, http.MethodGet, "https://"+apiHost+"/", nil)); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("status %d", resp.StatusCode)
	}
	if plain.Load() != 0 || tls.Load() == 0 {
		t.Errorf("dialled %d times as TLS, %d times as anything", tls.Load(), plain.Load())
	}
}
