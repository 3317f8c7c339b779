package dnsguard

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/policies"
)

// spoofer is an upstream that answers a query by hand, datagram by datagram.
func spoofer(t *testing.T, answer func(query []byte) [][]byte) (dial func(ctx context.Context, network, addr string) (net.Conn, error)) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = pc.Close() })
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			for _, datagram := range answer(bytes.Clone(buf[:n])) {
				_, _ = pc.WriteTo(datagram, from)
			}
		}
	})
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, pc.LocalAddr().String())
	}
}

// forge builds an answer to query that says what.
func forge(t *testing.T, query []byte, line string, change func(*dns.Msg)) []byte {
	m := new(dns.Msg)
	if err := m.Unpack(query); err != nil {
		t.Error(err)
		return nil
	}
	reply := new(dns.Msg).SetReply(m)
	rr, err := dns.NewRR(line)
	if err != nil {
		t.Error(err)
		return nil
	}
	reply.Answer = []dns.RR{rr}
	change(reply)
	packed, err := reply.Pack()
	if err != nil {
		t.Error(err)
	}
	return packed
}

func TestI6_SpoofedAnswersAreNotTaken(t *testing.T) {
	t.Parallel()
	const evil, good = "api.example. 300 IN A 93.184.216.66", "api.example. 300 IN A 93.184.216.34"
	none := func(*dns.Msg) {}
	for what, change := range map[string]func(*dns.Msg){
		"wrong id":         func(m *dns.Msg) { m.Id++ },
		"another name":     func(m *dns.Msg) { m.Question[0].Name = "bank.example." },
		"another type":     func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA },
		"another class":    func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		"no question":      func(m *dns.Msg) { m.Question = nil },
		"two questions":    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		"not an answer":    func(m *dns.Msg) { m.Response = false },
		"opcode of notify": func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dial := spoofer(t, func(query []byte) (out [][]byte) {
				for range 10 {
					out = append(out, forge(t, query, evil, change))
				}
				return append(out, []byte("?"), forge(t, query, good, none))
			})
			k := newKit(t, judgeOf("*.example"), nil, func(c *Config) { c.Dialer = dial })
			m, why := k.ask(t, "api.example", dns.TypeA)
			if !slices.Equal(texts(m), []string{"93.184.216.34"}) {
				t.Errorf("got %v, %+v", texts(m), why)
			}
			if k.Pins().Names(addr("93.184.216.66")) != nil {
				t.Error("the spoofed address is pinned")
			}
		})
	}
}

// TestI6_SpoofedAnswersForceTCP: what off-path spoofers can send over UDP
// ends the use of UDP for that question, not the question.
func TestI6_SpoofedAnswersForceTCP(t *testing.T) {
	t.Parallel()
	const evil = "longer-name-with-letters.example. 300 IN A 93.184.216.66"
	for what, answer := range map[string]func(t *testing.T, query []byte) [][]byte{
		"wrong case": func(t *testing.T, query []byte) [][]byte {
			return [][]byte{forge(t, query, evil, func(m *dns.Msg) { m.Question[0].Name = strings.ToUpper(m.Question[0].Name) })}
		},
		"flood": func(t *testing.T, query []byte) (out [][]byte) {
			for i := range 128 {
				out = append(out, forge(t, query, evil, func(m *dns.Msg) { m.Id += uint16(1 + i) }))
			}
			return out
		},
		"cut short": func(t *testing.T, query []byte) [][]byte {
			return [][]byte{forge(t, query, evil, func(m *dns.Msg) { m.Truncated = true })}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			udp := spoofer(t, func(query []byte) [][]byte { return answer(t, query) })
			var k *kit
			k = newKit(t, judgeOf("*.example"), records("longer-name-with-letters.example. 300 IN A 93.184.216.34"), func(c *Config) {
				c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if network == "udp" {
						return udp(ctx, network, addr)
					}
					return k.dial(ctx, network, addr)
				}
			})
			// The authority folds case; over TCP that doesn't matter.
			m, why := k.ask(t, "longer-name-with-letters.example", dns.TypeA)
			if !slices.Equal(texts(m), []string{"93.184.216.34"}) {
				t.Errorf("got %v, %+v", texts(m), why)
			}
		})
	}
}

func TestFailoverBacksOffFailedServers(t *testing.T) {
	t.Parallel()
	servers := []policies.Server{
		{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort("192.0.2.1:53")},
		{Kind: policies.ServerUDP, Addr: netip.MustParseAddrPort("192.0.2.2:53")},
	}
	for what, rcode := range map[string]int{"refuses the dial": -1, "SERVFAIL": dns.RcodeServerFailure, "REFUSED": dns.RcodeRefused} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			bad := newAuthority(t, func(w dns.ResponseWriter, m *dns.Msg) { _ = w.WriteMsg(new(dns.Msg).SetRcode(m, rcode&wire.MaskRcode)) })
			var k *kit
			k = newKit(t, judgeOf("*.example"), records("a.example. 1 IN A 93.184.216.34", "b.example. 1 IN A 93.184.216.35"), func(c *Config) {
				c.Policy.DNS.Servers = servers
				c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if strings.HasPrefix(addr, "192.0.2.1:") {
						bad.asked.Add(1000)
						if rcode < 0 {
							return nil, os.ErrDeadlineExceeded
						}
						return (&net.Dialer{}).DialContext(ctx, network, bad.addr.String())
					}
					return k.dial(ctx, network, addr)
				}
			})
			m, why := k.ask(t, "a.example", dns.TypeA)
			if len(m.Answer) != 1 || why.Upstream != "udp://192.0.2.2:53" {
				t.Errorf("got %v, %+v", m, why)
			}
			before := bad.asked.Load()
			k.ask(t, "b.example", dns.TypeA)
			if skipped := bad.asked.Load() == before; skipped != (rcode < 0) {
				t.Errorf("the failed server was skipped: %v", skipped)
			}
			k.clock.advance(time.Hour)
			before = bad.asked.Load()
			k.ask(t, "a.example", dns.TypeA)
			if bad.asked.Load() == before {
				t.Error("the first server is never asked again")
			}
		})
	}
}

func TestUpstreamFailuresAreBrieflyCached(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	k := newKit(t, judgeOf("*.example"), nil, func(c *Config) {
		c.Dialer = func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, os.ErrPermission
		}
	})
	m, why := k.ask(t, "a.example", dns.TypeA)
	code, text, _ := ede(m)
	if m.Rcode != dns.RcodeServerFailure || code != dns.ExtendedErrorCodeNetworkError || why.Outcome != OutcomeFailed || !strings.Contains(text, "upstream") {
		t.Errorf("got %v", m)
	}
	before := dials.Load()
	if _, why := k.ask(t, "a.example", dns.TypeA); !why.Cached || dials.Load() != before {
		t.Errorf("asked again at once: %+v", why)
	}
	k.clock.advance(failureTTL)
	if _, why := k.ask(t, "a.example", dns.TypeA); why.Cached {
		t.Error("the failure is remembered for too long")
	}
}

func TestSOABoundsNegativeAnswers(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("a.example. 300 IN TXT x"))
	for _, c := range []struct {
		name    string
		rcode   int
		outcome Outcome
	}{{"a.example", dns.RcodeSuccess, OutcomeEmpty}, {"no.example", dns.RcodeNameError, OutcomeNoName}} {
		m, why := k.ask(t, c.name, dns.TypeA)
		if m.Rcode != c.rcode || why.Outcome != c.outcome || len(m.Ns) != 1 || m.Ns[0].Header().Ttl != 60 {
			t.Errorf("%s: %v", c.name, m)
		}
		if _, why := k.ask(t, c.name, dns.TypeA); !why.Cached {
			t.Errorf("%s: not kept", c.name)
		}
	}
	k.clock.advance(61 * time.Second)
	if _, why := k.ask(t, "no.example", dns.TypeA); why.Cached {
		t.Error("kept for longer than the SOA says")
	}
}

func TestSameQuestionsShareOneLookup(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	k := newKit(t, judgeOf("*.example"), func(w dns.ResponseWriter, m *dns.Msg) {
		<-hold
		records("a.example. 300 IN A 93.184.216.34")(w, m)
	})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if m, _ := k.ask(t, "a.example", dns.TypeA); len(m.Answer) != 1 {
				t.Errorf("got %v", m)
			}
		})
	}
	waiting := func() (n int) {
		k.inflight.mu.Lock()
		defer k.inflight.mu.Unlock()
		for _, f := range k.inflight.open {
			n += len(f.waiting)
		}
		return n
	}
	for waiting() < 50 || k.auth.asked.Load() < 1 {
		time.Sleep(time.Millisecond)
	}
	close(hold)
	wg.Wait()
	if n := k.auth.asked.Load(); n != 1 {
		t.Errorf("%d questions upstream, want 1", n)
	}
}

// testCA is a root and a leaf for dns.test and 127.0.0.1.
func testCA(t *testing.T) (roots *x509.CertPool, leaf tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		DNSNames:              []string{"dns.test"},
		IPAddresses:           []net.IP{net.IPv4(192, 0, 2, 53)},
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(parsed)
	return roots, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestDoTReusesConnectionsAndVerifies(t *testing.T) {
	t.Parallel()
	roots, leaf := testCA(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{leaf}, NextProtos: []string{"dot"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &dns.Server{Listener: l, Handler: records("a.example. 300 IN A 93.184.216.34", "b.example. 300 IN A 93.184.216.35", "c.example. 300 IN A 93.184.216.36")}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = l.Close(); <-done })
	var dials atomic.Int64
	var last atomic.Pointer[net.Conn]
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		if network != "tcp" || addr != "192.0.2.53:853" {
			t.Errorf("dials %s %s", network, addr)
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		last.Store(&conn)
		return conn, err
	}
	over := func(name string) func(*Config) {
		return func(c *Config) {
			c.Policy.DNS.Servers = []policies.Server{{Kind: policies.ServerTLS, Addr: netip.MustParseAddrPort("192.0.2.53:853"), ServerName: hostOrZero(name)}}
			c.Roots, c.Dialer = roots, dial
		}
	}
	k := newKit(t, judgeOf("*.example"), nil, over("dns.test"))
	for _, n := range []string{"a.example", "b.example"} {
		if m, why := k.ask(t, n, dns.TypeA); len(m.Answer) != 1 || why.Upstream != "tls://192.0.2.53:853#dns.test" {
			t.Errorf("%s: %v %+v", n, m, why)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections for two questions, want 1", n)
	}
	_ = (*last.Load()).Close() // the kept connection breaks
	if m, why := k.ask(t, "c.example", dns.TypeA); len(m.Answer) != 1 || dials.Load() != 2 {
		t.Errorf("after a kept connection broke: %v %+v", m, why)
	}
	wrong := newKit(t, judgeOf("*.example"), nil, over("other.test"))
	if m, why := wrong.ask(t, "a.example", dns.TypeA); m.Rcode != dns.RcodeServerFailure || !strings.Contains(why.Text, "certificate") {
		t.Errorf("certificate for another name: %v %+v", m, why)
	}
	byAddr := newKit(t, judgeOf("*.example"), nil, over(""))
	if m, why := byAddr.ask(t, "a.example", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("certificate for the address: %v %+v", m, why)
	}
}

func TestDoHVerifiesAndRefusesRedirects(t *testing.T) {
	t.Parallel()
	roots, leaf := testCA(t)
	handler := records("a.example. 300 IN A 93.184.216.34")
	mux := http.NewServeMux()
	mux.HandleFunc("POST /dns-query", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m := new(dns.Msg)
		if err := m.Unpack(body); err != nil || m.Id != 0 || r.Header.Get("User-Agent") != "" {
			t.Errorf("query %v, id %d, agent %q", err, m.Id, r.Header.Get("User-Agent"))
		}
		rec := &msgWriter{}
		handler(rec, m)
		packed, _ := rec.msg.Pack()
		w.Header().Set("Content-Type", "application/dns-message")
		_, _ = w.Write(packed)
	})
	mux.Handle("/moved", http.RedirectHandler("/dns-query", http.StatusTemporaryRedirect))
	mux.HandleFunc("/html", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") })
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{leaf}}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	for _, c := range []struct {
		url string
		ok  bool
		say string
	}{
		{"https://dns.test/dns-query", true, ""},
		{"https://192.0.2.53/dns-query", true, ""},
		{"https://other.test/dns-query", false, "certificate"},
		{"https://dns.test/moved", false, "307"},
		{"https://dns.test/html", false, "something else"},
		{"https://dns.test/none", false, "404"},
	} {
		k := newKit(t, judgeOf("*.example"), nil, func(cfg *Config) {
			cfg.Policy.DNS.Servers = []policies.Server{{Kind: policies.ServerHTTPS, URL: c.url}}
			cfg.Roots = roots
			cfg.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
			}
		})
		m, why := k.ask(t, "a.example", dns.TypeA)
		if (len(m.Answer) == 1) != c.ok || !strings.Contains(why.Text, c.say) {
			t.Errorf("%s: %v %+v", c.url, m, why)
		}
	}
}

// msgWriter takes what a handler writes.
type msgWriter struct {
	dns.ResponseWriter
	msg *dns.Msg
}

func (w *msgWriter) WriteMsg(m *dns.Msg) error { w.msg = m; return nil }
