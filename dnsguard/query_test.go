package dnsguard

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
)

// guest is a UDP flow of a guest over loopback sockets.
type guest struct {
	*net.UDPConn
	t testing.TB
}

func (k *kit) udpGuest(t testing.TB) *guest {
	t.Helper()
	server, client := udpPair(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.ServeUDP(t.Context(), server)
	}()
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		<-done
	})
	return &guest{client, t}
}

// flowConn is the gateway's end of a guest's flow: a socket with one peer.
type flowConn struct {
	*net.UDPConn
	peer *net.UDPAddr
}

func (c flowConn) Write(b []byte) (int, error) { return c.WriteToUDP(b, c.peer) }
func (c flowConn) RemoteAddr() net.Addr        { return c.peer }

// udpPair returns the two ends of a flow.
func udpPair(t testing.TB) (gateway flowConn, client *net.UDPConn) {
	t.Helper()
	server, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	client, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	return flowConn{server, client.LocalAddr().(*net.UDPAddr)}, client
}

func (g *guest) exchange(packet []byte) []byte {
	g.t.Helper()
	if _, err := g.Write(packet); err != nil {
		g.t.Fatal(err)
	}
	return g.read()
}

func (g *guest) read() []byte {
	g.t.Helper()
	_ = g.SetReadDeadline(time.Now().Add(60 * time.Second))
	buf := make([]byte, 65536)
	n, err := g.Read(buf)
	if err != nil {
		g.t.Fatal(err)
	}
	return buf[:n]
}

func mustPack(t testing.TB, m *dns.Msg) []byte {
	t.Helper()
	packed, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return packed
}

func mustUnpack(t testing.TB, packet []byte) *dns.Msg {
	t.Helper()
	m := new(dns.Msg)
	if err := m.Unpack(packet); err != nil {
		t.Fatalf("%v in % x", err, packet)
	}
	return m
}

// oddNames are what the audit log calls what some odd queries asked for.
var oddNames = map[string]string{
	"root": ".", "single label": "localhost", "dot inside a label": `api\.example.`, "space": `a\ b.example.`, "NUL": `api\000.example.`, "UTF-8": `b\195\188cher.example.`,
	"class CH": "api.example.", "EDNS 1": "api.example.", "ANY": "api.example.", "two questions": "api.example.",
}

// TestI6_OddQueriesAreRefusedLegibly sends what no client of good will sends,
// and one good query behind each: the flow must still be served.
func TestI6_OddQueriesAreRefusedLegibly(t *testing.T) {
	t.Parallel()
	good := new(dns.Msg).SetQuestion("api.example.", dns.TypeA)
	query := func(change func(*dns.Msg)) []byte {
		m := new(dns.Msg).SetQuestion("api.example.", dns.TypeA)
		m.SetEdns0(4096, false)
		change(m)
		return mustPack(t, m)
	}
	ofType := func(qtype uint16) []byte {
		return query(func(m *dns.Msg) { m.Question[0].Qtype = qtype })
	}
	for _, c := range []struct {
		what   string
		packet []byte
		rcode  int // -1: no answer
	}{
		{"nothing", []byte{}, -1},
		{"half a header", make([]byte, 11), -1},
		{"an answer", query(func(m *dns.Msg) { m.Response = true }), -1},
		{"no question", query(func(m *dns.Msg) { m.Question = nil }), dns.RcodeFormatError},
		{"two questions", query(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }), dns.RcodeFormatError},
		{"class CH", query(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }), dns.RcodeRefused},
		{"class ANY", query(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassANY }), dns.RcodeRefused},
		{"opcode UPDATE", query(func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }), dns.RcodeNotImplemented},
		{"opcode NOTIFY", query(func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }), dns.RcodeNotImplemented},
		{"ANY", ofType(dns.TypeANY), dns.RcodeRefused},
		{"AXFR", ofType(dns.TypeAXFR), dns.RcodeRefused},
		{"IXFR", ofType(dns.TypeIXFR), dns.RcodeRefused},
		{"NULL", ofType(dns.TypeNULL), dns.RcodeRefused},
		{"private type", ofType(65280), dns.RcodeRefused},
		{"EDNS 1", query(func(m *dns.Msg) { m.IsEdns0().SetVersion(1) }), dns.RcodeBadVers},
		{"root", query(func(m *dns.Msg) { m.Question[0].Name = "." }), dns.RcodeRefused},
		{"single label", query(func(m *dns.Msg) { m.Question[0].Name = "localhost." }), dns.RcodeNameError},
		{"dot inside a label", query(func(m *dns.Msg) { m.Question[0].Name = `api\.example.` }), dns.RcodeRefused},
		{"space", query(func(m *dns.Msg) { m.Question[0].Name = `a\032b.example.` }), dns.RcodeRefused},
		{"NUL", query(func(m *dns.Msg) { m.Question[0].Name = `api\000.example.` }), dns.RcodeRefused},
		{"UTF-8", query(func(m *dns.Msg) { m.Question[0].Name = `b\195\188cher.example.` }), dns.RcodeRefused},
		{"address as a name", query(func(m *dns.Msg) { m.Question[0].Name = "127.0.0.1." }), dns.RcodeRefused},
		{"pointer to itself", append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12}, 0, 1, 0, 1), dns.RcodeFormatError},
		{"label of 64", append(append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 64}, make([]byte, 65)...), 0, 1, 0, 1), dns.RcodeFormatError},
		{"name of 256", append(append([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}, []byte(strings.Repeat("\x07aaaaaaa", 32))...), 0, 0, 1, 0, 1), dns.RcodeFormatError},
		{"cut short", query(func(*dns.Msg) {})[:20], dns.RcodeFormatError},
		{"TSIG", query(func(m *dns.Msg) { m.SetTsig("key.", dns.HmacSHA256, 300, 1) }), dns.RcodeFormatError},
		{"longer than any query", append(query(func(*dns.Msg) {}), make([]byte, 5000)...), dns.RcodeFormatError},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, judgeOf("api.example", "*.example"), records("api.example. 300 IN A 93.184.216.34"))
			g := k.udpGuest(t)
			if len(c.packet) > 0 {
				if _, err := g.Write(c.packet); err != nil {
					t.Fatal(err)
				}
			}
			if c.rcode >= 0 {
				m := mustUnpack(t, g.read())
				if m.Rcode != c.rcode || !m.Response || len(m.Answer) != 0 || m.Id != uint16(c.packet[0])<<8|uint16(c.packet[1]) {
					t.Errorf("got %v", m)
				}
			}
			good := good.Copy()
			good.Id = 4711
			if m := mustUnpack(t, g.exchange(mustPack(t, good))); m.Id != 4711 || len(m.Answer) != 1 {
				t.Errorf("the good query behind it got %v", m)
			}
			if n := k.auth.asked.Load(); n != 1 {
				t.Errorf("%d questions went upstream, want only the good one", n)
			}
			if k.Stats().Queries == 0 || c.rcode >= 0 && len(k.audit.kind(audit.DNSQuery)) != 2 {
				t.Errorf("audited: %+v", k.audit.kind(audit.DNSQuery))
			}
			if want, ok := oddNames[c.what]; ok && k.audit.kind(audit.DNSQuery)[0].DNS.Name != want {
				t.Errorf("audited %q, want %q", k.audit.kind(audit.DNSQuery)[0].DNS.Name, want)
			}
		})
	}
}

func TestAnswersKeepTheQuestionsCase(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("www.example. 300 IN CNAME cdn.example.", "cdn.example. 300 IN A 93.184.216.34"))
	g := k.udpGuest(t)
	for i, spelling := range []string{"www.example.", "WWW.EXAMPLE.", "wWw.ExAmPlE."} {
		m := new(dns.Msg).SetQuestion(spelling, dns.TypeA)
		got := mustUnpack(t, g.exchange(mustPack(t, m)))
		if got.Question[0].Name != spelling || got.Answer[0].Header().Name != spelling || got.Id != m.Id || !got.RecursionDesired || !got.RecursionAvailable {
			t.Errorf("%d: %v", i, got)
		}
		if a := got.Answer[1].(*dns.A); a.A.String() != "93.184.216.34" {
			t.Errorf("%d: %v", i, got)
		}
	}
	if n := k.auth.asked.Load(); n != 1 {
		t.Errorf("%d questions upstream, want 1", n)
	}
}

func TestEDNSSizeBoundsUDPAnswers(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 60 {
		lines = append(lines, fmt.Sprintf("many.example. 300 IN A 93.184.216.%d", i+1))
	}
	k := newKit(t, judgeOf("*.example"), records(lines...))
	g := k.udpGuest(t)
	for _, c := range []struct {
		size      uint16 // 0: no EDNS
		truncated bool
	}{{0, true}, {100, true}, {512, true}, {900, true}, {1232, false}, {4096, false}} {
		m := new(dns.Msg).SetQuestion("many.example.", dns.TypeA)
		if c.size > 0 {
			m.SetEdns0(c.size, false)
		}
		raw := g.exchange(mustPack(t, m))
		got := mustUnpack(t, raw)
		if got.Truncated != c.truncated || len(raw) > max(int(c.size), 512) || (got.IsEdns0() != nil) != (c.size > 0) {
			t.Errorf("size %d: %d bytes, TC %v", c.size, len(raw), got.Truncated)
		}
	}
	client := k.tcpGuest(t)
	m := new(dns.Msg).SetQuestion("many.example.", dns.TypeA)
	if err := client.WriteMsg(m); err != nil {
		t.Fatal(err)
	}
	got, err := client.ReadMsg()
	if err != nil || len(got.Answer) != 60 || got.Truncated {
		t.Errorf("over TCP: %v, %v", got, err)
	}
}

// tcpGuest is a TCP connection of a guest.
func (k *kit) tcpGuest(t testing.TB) *dns.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.ServeTCP(t.Context(), server)
	}()
	t.Cleanup(func() {
		_ = client.Close()
		<-done
	})
	_ = client.SetDeadline(time.Now().Add(60 * time.Second))
	return &dns.Conn{Conn: client}
}

func TestPipelinedQueriesAreAllAnswered(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 200 {
		lines = append(lines, fmt.Sprintf("n%d.example. 300 IN A 93.184.216.%d", i, i+1))
	}
	k := newKit(t, judgeOf("*.example"), records(lines...))
	client := k.tcpGuest(t)
	var stream []byte
	for i := range 200 {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.example.", i), dns.TypeA)
		m.Id = uint16(i)
		packed := mustPack(t, m)
		stream = append(append(stream, byte(len(packed)>>8), byte(len(packed))), packed...)
	}
	go func() { _, _ = client.Conn.Write(stream) }()
	seen := make([]bool, 200)
	for range 200 {
		m, err := client.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("93.184.216.%d", m.Id+1)
		if seen[m.Id] || !slices.Equal(texts(m), []string{want}) {
			t.Errorf("answer %d: %v", m.Id, texts(m))
		}
		seen[m.Id] = true
	}
}

func TestI11_TCPConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("api.example. 300 IN A 93.184.216.34"))
	ask := func(c *dns.Conn) error {
		if err := c.WriteMsg(new(dns.Msg).SetQuestion("api.example.", dns.TypeA)); err != nil {
			return err
		}
		_, err := c.ReadMsg()
		return err
	}
	for i := range maxTCPConns {
		if err := ask(k.tcpGuest(t)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if err := ask(k.tcpGuest(t)); err == nil || k.Stats().TCPRefused != 1 {
		t.Errorf("one more: %v, %+v", err, k.Stats())
	}
}
