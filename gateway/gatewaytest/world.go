package gatewaytest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
	"github.com/msb-project/msb/policies"
)

// World is a gateway, the guest on its link and the internet behind it.
type World struct {
	*Internet
	Gateway *gateway.Gateway
	Guest   *netstacktest.Guest
	Audit   *Recorder
	// CA signs servers of the internet; the gateway trusts it as it would the system's roots.
	CA    *Authority
	t     testing.TB
	close func()
}

// Start brings a world up under a policy in TOML. Unless the text has a [dns] table, names are resolved
// by the internet's own server.
func Start(t testing.TB, policy string) *World {
	t.Helper()
	return StartWith(t, Policy(t, policy), nil)
}

// StartWith is Start for a parsed policy; change, which may be nil, edits the configuration.
func StartWith(t testing.TB, p *policies.Policy, change func(*gateway.Config)) *World {
	t.Helper()
	w, link := Open(t, p, change)
	w.Guest = netstacktest.NewGuest(t, link, w.Gateway.Link())
	return w
}

// Open is StartWith without a guest: the frames on link are the caller's.
func Open(t testing.TB, p *policies.Policy, change func(*gateway.Config)) (w *World, link net.Conn) {
	t.Helper()
	w = &World{Internet: newInternet(t), Audit: new(Recorder), CA: NewAuthority(t), t: t}
	cfg := gateway.Config{
		Sandbox: "test", Policy: p, Audit: w.Audit, Dialer: w.Internet, Pinger: w.Internet, Roots: w.CA.Pool(),
		Link:    netstack.Config{GuestMAC: netstacktest.MAC, DHCP: true},
		HasIPv6: func() bool { return true },
	}
	if change != nil {
		change(&cfg)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway = g
	ours, theirs := netstacktest.Pair(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(ctx, netstack.NewStreamLink(ours)) })
	w.close = sync.OnceFunc(func() {
		if w.Guest != nil {
			w.Guest.Close()
		}
		cancel()
		if err := g.Close(); err != nil {
			t.Errorf("closing the gateway: %v", err)
		}
		wg.Wait()
	})
	t.Cleanup(w.close)
	return w, theirs
}

// Close ends guest and gateway before the test does: what the internet saw is then all that it will see.
func (w *World) Close() { w.close() }

// Policy parses a policy and sends its lookups to the internet's DNS server.
func Policy(t testing.TB, text string) *policies.Policy {
	t.Helper()
	p, err := policies.Parse("test.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.DNS.Servers[0].Kind == policies.ServerSystem {
		p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(Resolver)}}
	}
	return p
}

// Resolve asks the gateway's resolver from inside the guest, over UDP.
func (w *World) Resolve(name string, qtype uint16) *dns.Msg {
	w.t.Helper()
	conn, err := w.Guest.DialUDP(netip.AddrPortFrom(w.Gateway.Link().Gateway4, 53))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), qtype)
	q.SetEdns0(1232, false)
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	c := &dns.Conn{Conn: conn}
	if err := c.WriteMsg(q); err != nil {
		w.t.Fatal(err)
	}
	m, err := c.ReadMsg()
	if err != nil {
		w.t.Fatalf("resolving %s: %v", name, err)
	}
	return m
}

// Lookup resolves name to its first address, and fails the test when there is none.
func (w *World) Lookup(name string) netip.Addr {
	w.t.Helper()
	m := w.Resolve(name, dns.TypeA)
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A)
			return addr.Unmap()
		}
	}
	w.t.Fatalf("no address for %s: %v", name, m)
	return netip.Addr{}
}

// Dial connects from the guest.
func (w *World) Dial(addr netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := w.Guest.DialTCP(ctx, netip.AddrPortFrom(addr, port))
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Client is an HTTP client inside the guest: it resolves through the gateway and trusts its authority
// beside the internet's own.
func (w *World) Client() *http.Client {
	pool := w.CA.Pool()
	pool.AppendCertsFromPEM(w.Gateway.CAPEM())
	tr := &http.Transport{
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			ip, err := netip.ParseAddr(host)
			if err != nil {
				ip = w.Lookup(host)
			}
			p, err := net.LookupPort("tcp", port)
			if err != nil {
				return nil, err
			}
			return w.Dial(ip, uint16(p))
		},
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// Recorder is an audit.Sink that keeps everything.
type Recorder struct {
	mu     sync.Mutex
	events []audit.Event
	wake   chan struct{}
}

var _ audit.Sink = (*Recorder)(nil)

// Emit implements audit.Sink.
func (r *Recorder) Emit(e audit.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	if r.wake != nil {
		close(r.wake)
		r.wake = nil
	}
}

// Events returns what was emitted so far, of one kind.
func (r *Recorder) Events(kind audit.Kind) []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.events), func(e audit.Event) bool { return e.Kind != kind })
}

// All returns everything that was emitted so far.
func (r *Recorder) All() []audit.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Wait returns the first n events of a kind, and fails the test when they don't come.
func (r *Recorder) Wait(t testing.TB, kind audit.Kind, n int) []audit.Event {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		if r.wake == nil {
			r.wake = make(chan struct{})
		}
		wake := r.wake
		r.mu.Unlock()
		if got := r.Events(kind); len(got) >= n {
			return got[:n]
		}
		select {
		case <-wake:
		case <-deadline:
			t.Fatalf("got %d events of kind %s, want %d; all: %+v", len(r.Events(kind)), kind, n, r.All())
		}
	}
}
