package secretproxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/hostname"
)

// TestI11_IdleUpstreamConnectionsAreBounded: however many servers they are at, and whatever these speak. The newest are
// kept.
func TestI11_IdleUpstreamConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		addresses, each int
		protocol        string
	}{
		"many at one":               {1, 2 * maxIdleConns, "http/1.1"},
		"many at some":              {6, maxIdleConns / 2, "http/1.1"},
		"one at each":               {2 * maxIdleConns, 1, "http/1.1"},
		"one at each, HTTP/2":       {2 * maxIdleConns, 1, "h2"},
		"more than there are names": {maxUpstreams + 20, 1, "http/1.1"},
	} {
		var open, dialled, waiting atomic.Int64
		together := make(chan struct{})
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			if n := waiting.Add(1); n%int64(c.each) == 0 {
				for range c.each - 1 {
					together <- struct{}{}
				}
			} else {
				<-together
			}
			_, _ = io.WriteString(rw, "ok")
		})
		w.api.TLS.NextProtos = []string{c.protocol}
		dial := func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.api.Listener.Addr().String())
			if err != nil {
				return nil, err
			}
			open.Add(1)
			dialled.Add(1)
			return &upstreamConn{conn, sync.OnceFunc(func() { open.Add(-1) })}, nil
		}
		w.proxy.cfg.Dial, w.proxy.cfg.DialTLS = dial, dial
		ask := func(client *http.Client) {
			resp, err := client.Get("https://" + apiHost + "/")
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		for i := range c.addresses {
			dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{93, 184, byte(i / 250), byte(1 + i%250)}), 443)
			var all sync.WaitGroup
			first, second := w.client(apiHost, dst, true), w.client(apiHost, dst, true)
			for j := range c.each {
				all.Go(func() { ask([]*http.Client{first, second}[j%2]) })
			}
			all.Wait()
			if c.each == 1 {
				before := dialled.Load()
				ask(first)
				if dialled.Load() != before {
					t.Errorf("%s: the connection that was used last isn't used again", name)
				}
			}
			first.CloseIdleConnections()
			second.CloseIdleConnections()
		}
		eventually(t, name+": connections are kept over the bound, or not counted", func() bool {
			return open.Load() <= maxIdleConns && w.proxy.upstreams.open.Load() == open.Load()
		})
	}
}
