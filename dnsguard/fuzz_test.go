package dnsguard

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// pipeUpstream is an upstream in memory: it answers each datagram by answer.
func pipeUpstream(answer func(query []byte) []byte) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, _ string) (net.Conn, error) {
		if network != "udp" {
			return nil, net.ErrClosed
		}
		ours, theirs := net.Pipe()
		go func() {
			defer func() { _ = theirs.Close() }()
			buf := make([]byte, 4096)
			n, err := theirs.Read(buf)
			if err != nil {
				return
			}
			_, _ = theirs.Write(answer(buf[:n]))
		}()
		return ours, nil
	}
}

func fuzzGuard(f testing.TB, judge Judge, answer func(query []byte) []byte) *Guard {
	f.Helper()
	p := policies.Default()
	p.DNS.Servers = []policies.Server{{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort(upstreamAddr)}}
	p.Limits.DNSPerSecond = 0
	p.Hosts = mappings("db.internal")
	g, err := New(Config{
		Policy:  p,
		Judge:   judge,
		HasIPv6: func() bool { return true },
		Dialer:  pipeUpstream(answer),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = g.Close() })
	return g
}

// FuzzQuery sends any bytes as a guest's datagram. Whatever they are: no panic,
// an answer carries the query's id and is one, fits what the query takes, can be
// read by miekg/dns, and only allowed names go upstream.
func FuzzQuery(f *testing.F) {
	for _, m := range []*dns.Msg{
		new(dns.Msg).SetQuestion("api.example.", dns.TypeA),
		new(dns.Msg).SetQuestion("WWW.api.EXAMPLE.", dns.TypeHTTPS).SetEdns0(1232, true),
		new(dns.Msg).SetQuestion("db.internal.", dns.TypeAAAA),
		new(dns.Msg).SetQuestion("4.3.2.1.in-addr.arpa.", dns.TypePTR),
		new(dns.Msg).SetQuestion("evil.test.", dns.TypeANY).SetEdns0(512, false),
		new(dns.Msg).SetAxfr("example."),
		new(dns.Msg).SetUpdate("example."),
	} {
		f.Add(mustPack(f, m))
	}
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1})
	judge := judgeOf("*.example", "db.internal")
	g := fuzzGuard(f, judge, func(query []byte) []byte {
		m := new(dns.Msg)
		if err := m.Unpack(query); err != nil || len(m.Question) != 1 || !strings.HasSuffix(strings.ToLower(m.Question[0].Name), ".example.") {
			panic("asked upstream: " + m.String())
		}
		packed, _ := new(dns.Msg).SetReply(m).Pack()
		return packed
	})
	f.Fuzz(func(t *testing.T, packet []byte) {
		s := &session{g: g, udp: true}
		answers := make(chan []byte, 1)
		q := new(wire.Question)
		answer, pending := s.answerNow(packet, nil, q, func(a []byte) { answers <- a })
		if pending {
			answer = <-answers
		}
		if answer == nil {
			return
		}
		m := new(dns.Msg)
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("unreadable answer % x: %v", answer, err)
		}
		if !m.Response || answer[0] != packet[0] || answer[1] != packet[1] || len(answer) > wire.MaxUDP {
			t.Fatalf("answer % x", answer)
		}
		asked := new(dns.Msg)
		if asked.Unpack(packet) == nil && len(asked.Question) == 1 && len(m.Question) == 1 && m.Question[0] != asked.Question[0] {
			t.Fatalf("asked %v, answered %v", asked.Question, m.Question)
		}
	})
}

// FuzzAnswer puts any bytes behind the question of an upstream's answer. What
// reaches the guest is readable, answers its question, and holds no address but
// public ones, each of them pinned.
func FuzzAnswer(f *testing.F) {
	for _, lines := range [][]string{
		{"www.api.example. 300 IN A 93.184.216.34"},
		{"www.api.example. 0 IN A 127.0.0.1", "www.api.example. 0 IN A 93.184.216.34"},
		{"www.api.example. 300 IN CNAME cdn.test.", "cdn.test. 60 IN A 93.184.216.34"},
		{"www.api.example. 300 IN CNAME www.api.example."},
		{`www.api.example. 300 IN HTTPS 1 . alpn="h3,h2" ipv4hint="10.0.0.1,93.184.216.34" ech="AAAA"`},
		{"www.api.example. 300 IN AAAA ::ffff:10.0.0.1", "www.api.example. 300 IN AAAA 2606:2800::1"},
		{"www.api.example. 300 IN TXT \"x\" \"y\"", "www.api.example. 300 IN MX 10 mail.example."},
	} {
		m := new(dns.Msg).SetQuestion("www.api.example.", dns.TypeA)
		m.Response, m.Compress = true, true
		for _, line := range lines {
			rr, err := dns.NewRR(line)
			if err != nil {
				f.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		packed := mustPack(f, m)
		f.Add(packed[2:wire.HeaderLen], packed[wire.QuestionEnd(packed):], m.Answer[0].Header().Rrtype)
	}
	f.Fuzz(func(t *testing.T, header, body []byte, qtype uint16) {
		if len(header) != wire.HeaderLen-2 || !answerable(qtype) {
			return
		}
		header = append([]byte{header[0] | wire.FlagQR, header[1], 0, 1}, header[4:]...)
		g := fuzzGuard(t, judgeOf("*.example"), func(query []byte) []byte {
			answer := append([]byte{query[0], query[1]}, header...)
			answer = append(answer, query[wire.HeaderLen:wire.QuestionEnd(query)]...)
			return append(answer, body...)
		})
		m, _ := g.Answer(t.Context(), new(dns.Msg).SetQuestion("www.api.example.", qtype))
		if m == nil {
			t.Fatal("no readable answer")
		}
		checkAnswer(t, g, m)
	})
}

// checkAnswer verifies that m gives away nothing that it must not.
func checkAnswer(t *testing.T, g *Guard, m *dns.Msg) {
	t.Helper()
	if len(m.Answer) > maxRecords || len(m.Ns) > 1 {
		t.Errorf("%d and %d records", len(m.Answer), len(m.Ns))
	}
	check := func(raw []byte) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok || a.Is4In6() || !egress.Classify(a).Public() || !g.Pins().pinned(name("www.api.example"), a) {
			t.Errorf("%v was handed out", a)
		}
	}
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			check(rr.A.To4())
		case *dns.AAAA:
			check(rr.AAAA)
		case *dns.HTTPS:
			checkService(t, &rr.SVCB, check)
		case *dns.SVCB:
			checkService(t, rr, check)
		}
	}
}

func checkService(t *testing.T, rr *dns.SVCB, check func([]byte)) {
	t.Helper()
	for _, value := range rr.Value {
		switch v := value.(type) {
		case *dns.SVCBIPv4Hint:
			for _, ip := range v.Hint {
				check(ip.To4())
			}
		case *dns.SVCBIPv6Hint:
			for _, ip := range v.Hint {
				check(ip)
			}
		case *dns.SVCBMandatory, *dns.SVCBPort, *dns.SVCBNoDefaultAlpn, *dns.SVCBAlpn:
		default:
			t.Errorf("%v was handed on", v)
		}
	}
}
