package dnsguard

import (
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// TestI16_GuardAndReplayDecideAlike asks a resolver and a review the same questions, before and after an answer.
func TestI16_GuardAndReplayDecideAlike(t *testing.T) {
	t.Parallel()
	p, err := policies.Parse("test.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"*.example\"]\n[[egress.deny]]\nhosts = [\"bad.example\"]\n"+
		"[[egress.deny]]\nhosts = [\"denied.internal\"]\n[hosts]\n\"mapped.internal\" = \"127.0.0.1:1\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := egress.New(p)
	if err != nil {
		t.Fatal(err)
	}
	guard, err := New(Config{Policy: p, Judge: engine})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	replay := NewReplay(p, engine)
	names := []string{
		"good.example", "bad.example", "other.test", "mapped.internal", "denied.internal", "localhost", "metadata.google.internal", "one",
		"1.0.0.10.in-addr.arpa", "14.215.184.93.in-addr.arpa", "0.1.18.198.in-addr.arpa", "168.192.in-addr.arpa", "_443._tcp.good.example",
		"_sip._tcp.bad.example", "xn--bcher-kva.example", "under_score.example", "-.example",
	}
	for _, pinned := range []bool{false, true} {
		if pinned {
			guard.pins.put(name("good.example"), []netip.Addr{addr("93.184.215.14")}, time.Hour)
			replay.Given(name("good.example"), []netip.Addr{addr("93.184.215.14")})
			replay.Given(name("mapped.internal"), []netip.Addr{addr("198.18.1.0")})
		}
		for _, text := range names {
			for _, qtype := range []uint16{dns.TypeA, dns.TypePTR, dns.TypeSRV, dns.TypeHTTPS, dns.TypeANY, dns.TypeNULL} {
				packet, err := new(dns.Msg).SetQuestion(text+".", qtype).Pack()
				if err != nil {
					t.Fatal(err)
				}
				q := new(wire.Question)
				if err := q.Read(packet); err != nil {
					t.Fatal(err)
				}
				live, seen := decide(engine, guard.epoch.Load(), q), replay.Question(packet)
				if text == "0.1.18.198.in-addr.arpa" && !pinned {
					continue // a capture knows the addresses of [hosts] from its answers only
				}
				if live.verdict != seen.Verdict {
					t.Errorf("%s %s (pinned %v): the guard says %v, the review %v", text, dns.Type(qtype), pinned, live.verdict, seen.Verdict)
				}
				r, _ := guard.local(guard.epoch.Load(), q)
				if asked := r == nil; asked != (live.disposition == ask) && qtype != dns.TypeAAAA {
					t.Errorf("%s %s: asked upstream %v, decided %d", text, dns.Type(qtype), asked, live.disposition)
				}
			}
		}
	}
}

// TestI16_GuardAndReplayRefuseAlike gives a resolver and a review the same upstream answers: both refuse those
// that lead a name inside, for the same reason, and both let the others pass.
func TestI16_GuardAndReplayRefuseAlike(t *testing.T) {
	t.Parallel()
	p, err := policies.Parse("test.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"*.example\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := egress.New(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		qtype   uint16
		records []string
		reason  egress.Reason
	}{
		{"every address inside", dns.TypeA, []string{"www.example. 300 IN A 10.0.0.1", "www.example. 300 IN A 127.0.0.1"}, egress.ReasonRebinding},
		{"every address inside, in IPv6", dns.TypeAAAA, []string{"www.example. 300 IN AAAA 64:ff9b::7f00:1"}, egress.ReasonRebinding},
		{"a mapped address", dns.TypeAAAA, []string{"www.example. 300 IN AAAA ::ffff:93.184.216.34"}, egress.ReasonRebinding},
		{"inside after an alias", dns.TypeA, []string{"www.example. 300 IN CNAME a.test.", "a.test. 300 IN A 10.0.0.1"}, egress.ReasonRebinding},
		{"an alias of a local name", dns.TypeA, []string{"www.example. 300 IN CNAME localhost."}, egress.ReasonRebinding},
		{"an alias of a local name, text asked", dns.TypeTXT, []string{"www.example. 300 IN CNAME intranet."}, egress.ReasonRebinding},
		{"one address inside", dns.TypeA, []string{"www.example. 300 IN A 10.0.0.1", "www.example. 300 IN A 93.184.216.34"}, egress.ReasonRule},
		{"a hint inside", dns.TypeHTTPS, []string{"www.example. 300 IN HTTPS 1 . ipv4hint=10.0.0.1"}, egress.ReasonRule},
		{"no address", dns.TypeA, nil, egress.ReasonRule},
		{"an alias without end", dns.TypeA, []string{"www.example. 300 IN CNAME www.example."}, egress.ReasonRule},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := newKit(t, judgeOf("*.example"), records(c.records...))
			k.ask(t, "www.example", c.qtype)
			queries := k.audit.kind(audit.DNSQuery)
			if len(queries) != 1 || queries[0].Reason != c.reason.String() {
				t.Errorf("the guard audits %+v, want %v", queries, c.reason)
			}

			reply := new(dns.Msg).SetQuestion("www.example.", c.qtype)
			reply.Response = true
			for _, text := range c.records {
				rr, err := dns.NewRR(text)
				if err != nil {
					t.Fatal(err)
				}
				reply.Answer = append(reply.Answer, rr)
			}
			packet, err := reply.Pack()
			if err != nil {
				t.Fatal(err)
			}
			seen, ok := NewReplay(p, engine).Answer(packet)
			refused := c.reason == egress.ReasonRebinding
			if !ok || seen.Verdict.Reason != c.reason || seen.Verdict.Allowed() == refused {
				t.Errorf("the review says %+v, want %v", seen, c.reason)
			}
		})
	}
}

// TestI5_PrivateReverseNamesAreNotAsked, whatever a policy lets out: what a private address is called is not the guest's
// business. That of a public one is asked.
func TestI5_PrivateReverseNamesAreNotAsked(t *testing.T) {
	t.Parallel()
	p, err := policies.Parse("test.toml", []byte("version = 1\n[egress]\ndefault = \"public\"\n[[egress.allow]]\nhosts = [\"*\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := egress.New(p)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]disposition{"5.0.0.10.in-addr.arpa": refuse, "14.215.184.93.in-addr.arpa": ask} {
		if d := decideName(engine, NewReplay(p, engine), name(text), dns.TypePTR); d.disposition != want || want == refuse && d.verdict.Reason != egress.ReasonSpecialAddress {
			t.Errorf("%s: %d for %v, want %d", text, d.disposition, d.verdict, want)
		}
	}
}
