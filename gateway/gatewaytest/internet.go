package gatewaytest

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/miekg/dns"
)

// Resolver is the address of the internet's DNS server: write udp://9.9.9.9 into [dns] servers.
const Resolver = "9.9.9.9:53"

// Internet stands for everything outside. It implements gateway.Dialer and gateway.Pinger.
type Internet struct {
	t       testing.TB
	mu      sync.Mutex
	servers map[string]string // "tcp 93.184.215.14:443" → loopback address
	dialled []string
	zone    map[string][]dns.RR
	asked   []string
	dns     string
	awake   map[netip.Addr]bool // what answers pings
}

// newInternet makes one with a DNS server and nothing else.
func newInternet(t testing.TB) *Internet {
	t.Helper()
	i := &Internet{t: t, servers: map[string]string{}, zone: map[string][]dns.RR{}, awake: map[netip.Addr]bool{}}
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i.dns = pc.LocalAddr().String()
	started := make(chan struct{})
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(i.answer), NotifyStartedFunc: func() { close(started) }}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.ActivateAndServe() })
	<-started
	t.Cleanup(func() { _ = srv.Shutdown(); wg.Wait() })
	return i
}

// Record adds lines in zone-file form: "api.example.com. 60 IN A 93.184.215.14".
func (i *Internet) Record(lines ...string) {
	i.t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			i.t.Fatal(err)
		}
		name := strings.ToLower(rr.Header().Name)
		i.zone[name] = append(i.zone[name], rr)
	}
}

func (i *Internet) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.Authoritative = true
	name := strings.ToLower(q.Question[0].Name)
	i.mu.Lock()
	i.asked = append(i.asked, name)
	records, known := i.zone[name]
	for _, rr := range records {
		if rr.Header().Rrtype == q.Question[0].Qtype || rr.Header().Rrtype == dns.TypeCNAME {
			rr = dns.Copy(rr)
			rr.Header().Name = q.Question[0].Name // 0x20 casing comes back
			m.Answer = append(m.Answer, rr)
		}
	}
	i.mu.Unlock()
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	_ = w.WriteMsg(m)
}

// Serve accepts TCP connections to addr and gives each to handle on a goroutine of its own.
func (i *Internet) Serve(addr string, handle func(net.Conn)) {
	i.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		i.t.Fatal(err)
	}
	i.route("tcp", addr, l.Addr().String())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { defer c.Close(); handle(c) })
		}
	})
	i.t.Cleanup(func() { _ = l.Close(); wg.Wait() })
}

// ServeUDP answers each datagram to addr with what reply returns.
func (i *Internet) ServeUDP(addr string, reply func([]byte) []byte) {
	i.t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		i.t.Fatal(err)
	}
	i.route("udp", addr, pc.LocalAddr().String())
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 64<<10)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(reply(buf[:n]), from)
		}
	})
	i.t.Cleanup(func() { _ = pc.Close(); wg.Wait() })
}

// ServeHTTPS serves h at addr with a certificate for names, signed by an authority of the test's own.
func (i *Internet) ServeHTTPS(addr string, cert tls.Certificate, h http.Handler) {
	i.t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	srv.EnableHTTP2 = true
	srv.StartTLS()
	i.route("tcp", addr, srv.Listener.Addr().String())
	i.t.Cleanup(srv.Close)
}

// ServeHTTP serves h in plain at addr.
func (i *Internet) ServeHTTP(addr string, h http.Handler) {
	i.t.Helper()
	srv := httptest.NewServer(h)
	i.route("tcp", addr, srv.Listener.Addr().String())
	i.t.Cleanup(srv.Close)
}

func (i *Internet) route(network, addr, to string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.servers[network+" "+netip.MustParseAddrPort(addr).String()] = to
}

// DialContext implements gateway.Dialer: what nobody serves refuses the connection.
func (i *Internet) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	network = strings.TrimRight(network, "46")
	i.mu.Lock()
	to, ok := i.servers[network+" "+addr]
	if addr == Resolver && network == "udp" {
		to, ok = i.dns, true
	} else {
		i.dialled = append(i.dialled, network+" "+addr)
	}
	i.mu.Unlock()
	if !ok {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, to)
}

// AnswerPings makes addr answer echo requests.
func (i *Internet) AnswerPings(addr netip.Addr) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.awake[addr] = true
}

// Ping implements gateway.Pinger: what answers no pings is unreachable. Each counts as dialled, at port 0.
func (i *Internet) Ping(_ context.Context, dst netip.Addr, _ uint16, _ []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.dialled = append(i.dialled, "icmp "+netip.AddrPortFrom(dst, 0).String())
	if !i.awake[dst] {
		return &net.OpError{Op: "ping", Net: "icmp", Err: syscall.EHOSTUNREACH}
	}
	return nil
}

// Dialled lists the connections that were tried, "tcp 93.184.215.14:443", without those to Resolver.
func (i *Internet) Dialled() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.dialled)
}

// Asked lists the names that were looked up, in order.
func (i *Internet) Asked() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.asked)
}
