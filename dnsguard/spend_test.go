package dnsguard

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// TestI11_EverySendOfAQuestionIsSpent counts what reaches a server that makes us ask again: without EDNS, over TCP.
func TestI11_EverySendOfAQuestionIsSpent(t *testing.T) {
	t.Parallel()
	for text, handle := range map[string]dns.HandlerFunc{
		"answers": func(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetReply(m)) },
		"no EDNS": func(w dns.ResponseWriter, m *dns.Msg) {
			reply := new(dns.Msg).SetReply(m)
			if m.IsEdns0() != nil {
				reply.Rcode = dns.RcodeFormatError
			}
			_ = w.WriteMsg(reply)
		},
		"cut short": func(w dns.ResponseWriter, m *dns.Msg) {
			reply := new(dns.Msg).SetReply(m)
			reply.Truncated = w.LocalAddr().Network() == "udp"
			_ = w.WriteMsg(reply)
		},
	} {
		var left atomic.Int64
		left.Store(7)
		k := newKit(t, judgeOf("*.example"), handle, func(c *Config) {
			c.Spend = func(bytes int) error {
				if bytes <= headerLen {
					t.Errorf("a question of %d bytes", bytes)
				}
				if left.Add(-1) < 0 {
					return errors.New("used up")
				}
				return nil
			}
		})
		for i := range 12 {
			m, why := k.ask(t, fmt.Sprintf("n%d.example", i), dns.TypeTXT)
			if spent := left.Load() < 0; spent != (m.Rcode == dns.RcodeRefused && why.Outcome == OutcomeLimited) {
				t.Errorf("%s: question %d: %v, with the budget used up: %v", text, i, why.Outcome, spent)
			}
		}
		if n := k.auth.asked.Load(); n != 7 {
			t.Errorf("%s: the server was asked %d times, 7 were allowed", text, n)
		}
	}
}

// TestI11_OnlyQuestionsThatLeaveAreSpent asks what is answered from here, beside one that isn't.
func TestI11_OnlyQuestionsThatLeaveAreSpent(t *testing.T) {
	t.Parallel()
	var spent atomic.Int64
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: []byte{93, 184, 215, 14}}}
		_ = w.WriteMsg(reply)
	}, func(c *Config) {
		c.Spend = func(int) error { spent.Add(1); return nil }
	})
	for _, name := range []string{"a.example", "a.example", "evil.test", "localhost", "1.0.0.10.in-addr.arpa", "A.Example", "b.example"} {
		k.ask(t, name, dns.TypeA)
	}
	if n := k.auth.asked.Load(); n != 2 || spent.Load() != n {
		t.Errorf("%d questions were counted, %d reached the server, 2 were to", spent.Load(), n)
	}
}
