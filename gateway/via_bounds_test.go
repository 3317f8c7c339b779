package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/hostname"
)

// oneDialer leads every dial to one server.
type oneDialer func() net.Conn

func (d oneDialer) DialContext(context.Context, string, string) (net.Conn, error) { return d(), nil }

// countedReads counts what arrives at the proxy.
type countedReads struct {
	net.Conn
	n atomic.Int64
}

func (c *countedReads) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// viaTo dials by a proxy that serve plays, with the fake clock of the test's bubble.
func viaTo(g *Gateway, raw string, serve func(net.Conn)) (net.Conn, error) {
	g.cfg.Dialer = oneDialer(func() net.Conn {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			serve(theirs)
		}()
		return ours
	})
	via, err := url.Parse(raw)
	if err != nil {
		return nil, err
	}
	return dialVia(context.Background(), g, via, hostname.MustParse("api.example.com"), netip.MustParseAddrPort("93.184.215.14:443"))
}

// TestI11_WaitsForViaAreBounded has a proxy that keeps the dial waiting, on a fake clock.
func TestI11_WaitsForViaAreBounded(t *testing.T) {
	t.Parallel()
	head := func(c net.Conn) { _, _ = http.ReadRequest(bufio.NewReader(c)) }
	for name, tt := range map[string]struct {
		via   string
		serve func(net.Conn)
		opens bool
	}{
		"it reads nothing": {"http://10.9.9.9:3128", func(net.Conn) { time.Sleep(time.Hour) }, false},
		"it never answers": {"http://10.9.9.9:3128", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false},
		"half a head": {"http://10.9.9.9:3128", func(c net.Conn) {
			head(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nX: ")
			_, _ = io.Copy(io.Discard, c)
		}, false},
		"a byte each second": {"http://10.9.9.9:3128", func(c net.Conn) {
			head(c)
			for _, b := range []byte("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 100) + "\r\n\r\n") {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, false},
		"TLS that never begins": {"https://10.9.9.9:3128", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, false},
		"it answers late (twin)": {"http://10.9.9.9:3128", func(c net.Conn) {
			head(c)
			time.Sleep(dialTimeout - time.Second)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				conn, err := viaTo(new(Gateway), tt.via, tt.serve)
				if waited := time.Since(start); waited > dialTimeout || (err == nil) != tt.opens {
					t.Errorf("after %v: %v", waited, err)
				}
				if err != nil && !errors.Is(err, errVia) {
					t.Errorf("%v is not about the proxy", err)
				}
				if err == nil {
					_ = conn.Close()
				}
				time.Sleep(2 * time.Hour) // the proxies that sleep
			})
		})
	}
}

// TestI11_ViaDialsCountAsEgress compares what a dial took from the budget with what arrived at the proxy. What goes
// through the tunnel is counted by whoever writes it.
func TestI11_ViaDialsCountAsEgress(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS()
	defer srv.Close()
	for scheme, answer := range map[string]string{"http": "200 OK", "https": "200 OK", "http ": "407 No", "https ": "407 No"} {
		g := new(Gateway)
		g.cfg.Roots = srv.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		var wire *countedReads
		opened := make(chan struct{})
		var before int64
		conn, err := viaTo(g, strings.TrimSpace(scheme)+"://127.0.0.1:3128", func(c net.Conn) {
			wire = &countedReads{Conn: c}
			c = wire
			if strings.HasPrefix(scheme, "https") {
				c = tls.Server(wire, srv.TLS)
			}
			r := bufio.NewReader(c)
			_, _ = http.ReadRequest(r)
			before = wire.n.Load()
			close(opened)
			_, _ = io.WriteString(c, "HTTP/1.1 "+answer+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, r)
		})
		<-opened
		if got, want := g.budget.used.Load(), packetCost+before; got != want {
			t.Errorf("%s, %s: %d bytes taken, %d sent and %d for the attempt", scheme, answer, got, before, packetCost)
		}
		if (err == nil) != (answer == "200 OK") {
			t.Fatal(err)
		}
		if err != nil {
			continue
		}
		used := g.budget.used.Load()
		if _, err := conn.Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		if got := g.budget.used.Load(); got != used {
			t.Errorf("%s: the tunnel took %d of its own", scheme, got-used)
		}
		_ = conn.Close()
	}
}
