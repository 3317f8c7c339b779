package dnsguard

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/wire"
)

// BenchmarkCachedQuery is one query of a guest from packet to packet.
func BenchmarkCachedQuery(b *testing.B) {
	k := newKit(b, judgeOf("*.example"), records("api.example. 3000 IN A 93.184.216.34"), func(c *Config) { c.Audit = audit.Discard{} })
	k.ask(b, "api.example", dns.TypeA)
	m := new(dns.Msg).SetQuestion("Api.Example.", dns.TypeA)
	m.SetEdns0(1232, false)
	packet := mustPack(b, m)
	s := &session{g: k.Guard, udp: true}
	out := make([]byte, 0, wire.MaxUDP)
	q := new(wire.Question)
	b.ReportAllocs()
	for b.Loop() {
		if answer, _ := s.answerNow(packet, out, q, nil); len(answer) < 40 {
			b.Fatal("no answer")
		}
	}
}

// BenchmarkRefusedQuery is one for a name that isn't allowed.
func BenchmarkRefusedQuery(b *testing.B) {
	k := newKit(b, judgeOf("*.example"), nil, func(c *Config) { c.Audit = audit.Discard{} })
	packet := mustPack(b, new(dns.Msg).SetQuestion("evil.test.", dns.TypeA))
	s := &session{g: k.Guard, udp: true}
	out := make([]byte, 0, wire.MaxUDP)
	q := new(wire.Question)
	b.ReportAllocs()
	for b.Loop() {
		if answer, _ := s.answerNow(packet, out, q, nil); len(answer) < 20 {
			b.Fatal("no answer")
		}
	}
}

// BenchmarkUncachedQuery is one that goes upstream, over loopback sockets; the
// upstream's work is in it.
func BenchmarkUncachedQuery(b *testing.B) {
	k := newKit(b, judgeOf("*"), func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		hdr := dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
		reply.Answer = []dns.RR{&dns.A{Hdr: hdr, A: []byte{93, 184, 216, 34}}}
		_ = w.WriteMsg(reply)
	}, func(c *Config) { c.Audit = audit.Discard{} })
	s := &session{g: k.Guard, udp: true}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		q, answers := new(wire.Question), make(chan []byte)
		later := func(answer []byte) { answers <- answer }
		for pb.Next() {
			packet := mustPack(b, new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.example.", serial.Add(1)), dns.TypeA))
			answer, pending := s.answerNow(packet, nil, q, later)
			if pending {
				answer = <-answers
			}
			if len(answer) < 40 {
				b.Errorf("got % x", answer)
				return
			}
		}
	})
}

var serial atomic.Int64
