package dnsguard

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/policies"
)

// TestI11_EveryQuestionSentIsCharged counts what reaches a server that makes us ask again: without EDNS, over TCP.
func TestI11_EveryQuestionSentIsCharged(t *testing.T) {
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
				if bytes <= wire.HeaderLen {
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

// TestI11_EncryptedQuestionsAreSpent asks over TLS and over HTTPS: each question that reaches the server was counted, on
// new connections and on kept ones, and none is sent once the budget is used up.
func TestI11_EncryptedQuestionsAreSpent(t *testing.T) {
	t.Parallel()
	for _, kind := range []policies.ServerKind{policies.ServerTLS, policies.ServerHTTPS} {
		for _, limited := range []bool{true, false} {
			var reached, spent atomic.Int64
			const budget, questions = 5, 9
			k := newKit(t, judgeOf("*.example"), nil, encrypted(t, kind, &reached), func(c *Config) {
				c.Spend = func(bytes int) error {
					if want := wire.HeaderLen + len("\x02n0\x07example\x00") + 4 + wire.OPTLen; bytes != want {
						t.Errorf("%v: a question of %d bytes is counted as %d", kind, want, bytes)
					}
					if spent.Add(1) > budget && limited {
						return errors.New("used up")
					}
					return nil
				}
			})
			for i := range questions {
				m, why := k.ask(t, fmt.Sprintf("n%d.example", i), dns.TypeTXT)
				if over := limited && i >= budget; over != (m.Rcode == dns.RcodeRefused && why.Outcome == OutcomeLimited) {
					t.Errorf("%v: question %d: %v, with the budget used up: %v", kind, i, why, over)
				}
			}
			want := int64(questions)
			if limited {
				want = budget
			}
			if n := reached.Load(); n != want {
				t.Errorf("%v, limited %v: the server was asked %d times, want %d", kind, limited, n, want)
			}
		}
	}
}

// encrypted serves empty answers over TLS or HTTPS, and makes a configuration ask there.
func encrypted(t *testing.T, kind policies.ServerKind, reached *atomic.Int64) func(*Config) {
	t.Helper()
	roots, leaf := testCA(t)
	answer := func(w dns.ResponseWriter, m *dns.Msg) {
		reached.Add(1)
		_ = w.WriteMsg(new(dns.Msg).SetReply(m))
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{leaf}, NextProtos: []string{"dot", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	server := policies.Server{Kind: kind, Addr: netip.MustParseAddrPort("192.0.2.53:853"), ServerName: hostOrZero("dns.test")}
	serve := func() { _ = (&dns.Server{Listener: l, Handler: dns.HandlerFunc(answer)}).ActivateAndServe() }
	if kind == policies.ServerHTTPS {
		server = policies.Server{Kind: kind, URL: "https://dns.test/dns-query"}
		serve = func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				m, rec := new(dns.Msg), &msgWriter{}
				if err := m.Unpack(body); err != nil {
					t.Error(err)
				}
				answer(rec, m)
				packed, _ := rec.msg.Pack()
				w.Header().Set("Content-Type", "application/dns-message")
				_, _ = w.Write(packed)
			}))
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); serve() }()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return func(c *Config) {
		c.Policy.DNS.Servers, c.Roots = []policies.Server{server}, roots
		c.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		}
	}
}
