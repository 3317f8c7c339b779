package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// outward counts what leaves a gateway as egress_bytes does: payload, and a packet for each datagram, echo request
// and attempt to connect.
type outward struct {
	*gatewaytest.World
	sent atomic.Int64
}

var (
	_ gateway.Dialer = (*outward)(nil)
	_ gateway.Pinger = (*outward)(nil)
)

// DialContext implements gateway.Dialer.
func (o *outward) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	each := int64(0)
	if network == "udp" {
		each = least
	} else {
		o.sent.Add(least)
	}
	c, err := o.World.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &outwardConn{c, &o.sent, each}, nil
}

// Ping implements gateway.Pinger.
func (o *outward) Ping(_ context.Context, _ netip.Addr, _ uint16, payload []byte) error {
	o.sent.Add(least + int64(len(payload)))
	return nil
}

type outwardConn struct {
	net.Conn
	sent *atomic.Int64
	each int64
}

// Write implements net.Conn.
func (c *outwardConn) Write(b []byte) (int, error) {
	c.sent.Add(c.each + int64(len(b)))
	return c.Conn.Write(b)
}

const channelsPolicy = `
[[egress.allow]]
name = "relay"
cidrs = ["93.184.215.14/32"]
ports = [7, 9]
[[egress.allow]]
name = "datagrams"
cidrs = ["93.184.215.14/32"]
ports = [7]
protocol = "udp"
[[egress.allow]]
name = "pings"
cidrs = ["93.184.215.14/32"]
protocol = "icmp"
[[egress.allow]]
name = "web"
hosts = ["*.example.com"]
protocol = "https"
methods = ["GET", "POST"]
[[egress.allow]]
name = "plain"
hosts = ["*.example.com"]
protocol = "http"
[limits]
dns_per_second = 100000
`

// channels are ways of a guest to send; each call sends something, or fails.
func (o *outward) channels(t *testing.T) map[string]func(i int) {
	client := o.Client()
	post := func(url, body string, header http.Header, trailer http.Header) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.NopCloser(strings.NewReader(body)))
		if err != nil {
			t.Error(err)
			return
		}
		req.ContentLength, req.Header, req.Trailer = -1, header, trailer
		if resp, err := client.Do(req); err == nil {
			_ = resp.Body.Close()
		}
	}
	say := func(dst, text string) {
		at := netip.MustParseAddrPort(dst)
		c, err := o.Dial(at.Addr(), at.Port())
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		_, _ = io.WriteString(c, text)
		_, _ = c.Read(make([]byte, 1))
	}
	datagram := func(text string) {
		c, err := o.Guest.DialUDP(netip.MustParseAddrPort(site + ":7"))
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second)) // a refused one has no answer
		if _, err = io.WriteString(c, text); err == nil {
			_, _ = c.Read(make([]byte, 1))
		}
	}
	proxy := netip.AddrPortFrom(o.Gateway.Link().Gateway4, gateway.ProxyPort).String()
	long := strings.Repeat("x", 60)
	fill := http.Header{"X-Fill": {strings.Repeat("x", 1000)}}
	return map[string]func(i int){
		"relayed bytes":       func(int) { say(site+":7", strings.Repeat("x", 500)) },
		"refused connections": func(int) { say(site+":9", "") },
		"bodies":              func(int) { post("https://www.example.com/", strings.Repeat("x", 1000), http.Header{}, nil) },
		"fields":              func(int) { post("https://www.example.com/", "", fill, nil) },
		"trailers":            func(int) { post("https://www.example.com/", "x", http.Header{}, fill) },
		"plain bodies":        func(int) { post("http://www.example.com/", strings.Repeat("x", 1000), http.Header{}, nil) },
		"datagrams":           func(int) { datagram("xxxx") },
		"pings": func(int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = o.Guest.Ping(ctx, siteAddr, []byte(strings.Repeat("x", 200)))
		},
		"questions":         func(i int) { o.Resolve(fmt.Sprintf("%s.n%d.example.com", long, i), dns.TypeTXT) },
		"questions, by tcp": func(i int) { o.askTCP(fmt.Sprintf("%s.n%d.example.com", long, i)) },
		"names, by the proxy": func(i int) {
			say(proxy, fmt.Sprintf("CONNECT %s.n%d.example.com:443 HTTP/1.1\r\n\r\n", long, i))
		},
		"requests, by the proxy": func(int) {
			say(proxy, "GET http://www.example.com/ HTTP/1.1\r\nX-Fill: "+strings.Repeat("x", 1000)+"\r\n\r\n")
		},
		"connections, by the proxy": func(int) { say(proxy, "CONNECT "+site+":9 HTTP/1.1\r\n\r\n") },
	}
}

// askTCP asks the resolver over TCP.
func (o *outward) askTCP(name string) {
	c, err := o.Dial(o.Gateway.Link().Gateway4, 53)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), dns.TypeA)
	conn := &dns.Conn{Conn: c}
	if conn.WriteMsg(q) == nil {
		_, _ = conn.ReadMsg()
	}
}

// TestI11_EgressBytesBoundEveryChannel sends by one channel until nothing leaves any more, or too much did.
func TestI11_EgressBytesBoundEveryChannel(t *testing.T) {
	t.Parallel()
	const budget = 4 << 10
	start := func(t *testing.T, limit bool) *outward {
		policy := channelsPolicy
		if limit {
			policy += fmt.Sprintf("egress_bytes = \"%d\"\n", budget)
		}
		o := new(outward)
		o.World = gatewaytest.StartWith(t, gatewaytest.Policy(t, policy), func(c *gateway.Config) { c.Dialer, c.Pinger = o, o })
		o.Record("www.example.com. 60 IN A " + site)
		o.Serve(site+":7", func(c net.Conn) { _, _ = io.ReadFull(c, make([]byte, 500)) })
		o.ServeUDP(site+":7", func([]byte) []byte { return []byte("x") })
		read := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
		o.ServeHTTPS(site+":443", o.CA.Certificate("www.example.com"), read)
		o.ServeHTTP(site+":80", read)
		return o
	}
	for name := range start(t, false).channels(t) {
		for _, limit := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "/limited", false: "/unlimited (twin)"}[limit], func(t *testing.T) {
				t.Parallel()
				o := start(t, limit)
				send := o.channels(t)[name]
				for i, before := 0, int64(-1); o.sent.Load() <= budget && (o.sent.Load() > before || !limit); i++ {
					before = o.sent.Load()
					send(i)
				}
				if n := o.sent.Load(); n > budget == limit {
					t.Errorf("%d bytes left, of a budget of %d", n, budget)
				}
			})
		}
	}
}
