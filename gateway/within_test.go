package gateway_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

const (
	inside  = "10.20.0.5"
	wikiOf  = "[[egress.allow]]\nname = \"wiki\"\nhosts = [\"wiki.corp.example\"]\nwithin = [\"10.20.0.0/16\"]\n"
	pagesOf = wikiOf + "paths = [\"/pages/**\"]\n"
	labOf   = "[[egress.allow]]\nname = \"lab\"\ncidrs = [\"10.0.0.0/8\"]\nports = [\"1-65535\"]\nprivate = true\n" +
		"[[egress.allow]]\nname = \"lab datagrams\"\ncidrs = [\"10.0.0.0/8\"]\nports = [\"1-65535\"]\nprotocol = \"udp\"\nprivate = true\n"
)

// recorded is a server that keeps what it was asked for.
type recorded struct {
	mu   sync.Mutex
	seen []string
}

func (s *recorded) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path)
}

func (s *recorded) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// request makes one request and returns its status, or 0 if the connection failed.
func request(t *testing.T, c *http.Client, method, url string) (status, major int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode, resp.ProtoMajor
}

// A name's rule holds at its address inside, whatever a private rule opens there.
func TestI5_RequestsInsideAreJudgedByName(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]string{"alone": pagesOf, "beside a private rule": pagesOf + labOf} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, policy)
			w.Record("wiki.corp.example. 60 IN A " + inside)
			server := &recorded{}
			w.ServeHTTPS(inside+":443", w.CA.Certificate("wiki.corp.example"), server)
			h1 := w.Client()
			tr, _ := h1.Transport.(*http.Transport)
			tr.ForceAttemptHTTP2, tr.TLSNextProto = false, map[string]func(string, *tls.Conn) http.RoundTripper{}
			for way, c := range map[string]*http.Client{"HTTP/1": h1, "HTTP/2": w.Client(), "explicit proxy": proxied(w, w.Gateway.Link().Gateway4)} {
				status, major := request(t, c, http.MethodPut, "https://wiki.corp.example/admin")
				if status != http.StatusForbidden || way != "explicit proxy" && major != int(way[5]-'0') {
					t.Errorf("%s: PUT outside of the paths: %d by HTTP/%d, want 403", way, status, major)
				}
				if seen := server.take(); len(seen) != 0 {
					t.Errorf("%s: the server was sent %v", way, seen)
				}
				if status, _ := request(t, c, http.MethodPut, "https://wiki.corp.example/pages/x"); status != http.StatusOK {
					t.Errorf("%s: PUT within the paths: %d, want 200", way, status)
				}
				if seen := server.take(); !slices.Equal(seen, []string{"PUT /pages/x"}) {
					t.Errorf("%s: the server was sent %v", way, seen)
				}
			}
			// Nothing else gets through on the name's port: no other name, no bytes, no HTTP/3.
			c, err := w.Dial(netip.MustParseAddr(inside), 443)
			if err == nil {
				_ = tls.Client(c, &tls.Config{ServerName: "other.corp.example", MinVersion: tls.VersionTLS12}).Handshake()
				_ = c.Close()
			}
			if c, err = w.Dial(netip.MustParseAddr(inside), 443); err == nil {
				_, _ = io.WriteString(c, "PUT /admin HTTP/1.1\r\nHost: wiki.corp.example\r\n\r\n")
				_ = c.SetDeadline(time.Now().Add(60 * time.Second))
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
			u, err := w.Guest.DialUDP(netip.MustParseAddrPort(inside + ":443"))
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			_, _ = u.Write([]byte("quic"))
			w.Audit.Wait(t, audit.FlowOpen, 4)
			if seen := server.take(); len(seen) != 0 {
				t.Errorf("the server was sent %v", seen)
			}
			if slices.Contains(w.Dialled(), "udp "+inside+":443") {
				t.Error("HTTP/3 was let out")
			}
		})
	}
}

// The other side of it: a private rule goes by the address alone, so that a guest
// which never asks for a name is under it. policy.md says so.
func TestPrivateRulesGoByAddressAlone(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, pagesOf+labOf)
	server := &recorded{}
	w.ServeHTTPS(inside+":443", w.CA.Certificate("wiki.corp.example"), server)
	c := w.Client()
	tr, _ := c.Transport.(*http.Transport)
	tr.TLSClientConfig.ServerName = "wiki.corp.example"
	if status, _ := request(t, c, http.MethodPut, "https://"+inside+"/admin"); status != http.StatusOK || len(server.take()) != 1 {
		t.Errorf("by its address: %d, want 200", status)
	}
}

func TestI5_NamesKeepToTheirRanges(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, pagesOf+labOf+"[[egress.allow]]\nname = \"other\"\nhosts = [\"other.attacker.example\"]\nprotocol = \"tcp\"\nports = [80]\n")
	for name, addrs := range map[string][]string{
		"other.attacker.example": {inside, "10.21.0.5", "169.254.169.254"},
		"wiki.corp.example":      {"10.21.0.5", "192.168.0.1", "169.254.169.254", "127.0.0.1", site},
	} {
		for _, a := range addrs {
			w.Record(name + ". 0 IN A " + a)
		}
		if m := w.Resolve(name, dns.TypeA); m.Rcode != dns.RcodeRefused || len(m.Answer) != 0 {
			t.Errorf("%s: got %v, want REFUSED and no answer", name, m)
		}
	}
	w.Record("wiki.corp.example. 0 IN A " + inside) // beside those that it may not have
	m := w.Resolve("wiki.corp.example", dns.TypeA)
	if len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "\t"+inside) {
		t.Errorf("got %v, want %s alone", m, inside)
	}
	for _, a := range []string{"169.254.169.254", "127.0.0.1", "192.168.0.1", site} {
		if c, err := w.Dial(netip.MustParseAddr(a), 443); err == nil {
			_ = c.Close()
			t.Errorf("%s could be connected to", a)
		}
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
}

// Datagrams and pings by name are judged as connections are.
func TestI5_DatagramsAndPingsKeepTheirRanges(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nname = \"time\"\nhosts = [\"time.corp.example\"]\nwithin = [\""+inside+"/32\"]\nports = [123]\nprotocol = \"udp\"\n"+
		"[[egress.allow]]\nname = \"ping\"\nhosts = [\"time.corp.example\"]\nwithin = [\""+inside+"/32\"]\nprotocol = \"icmp\"\n")
	w.Record("time.corp.example. 60 IN A "+inside, "time.corp.example. 60 IN A 10.20.0.6")
	for _, a := range []string{inside, "10.20.0.6"} {
		w.ServeUDP(a+":123", func(b []byte) []byte { return append([]byte("re: "), b...) })
		w.AnswerPings(netip.MustParseAddr(a))
	}
	w.Lookup("time.corp.example")
	for _, a := range []string{inside, "10.20.0.6"} {
		c, err := w.Guest.DialUDP(netip.MustParseAddrPort(a + ":123"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("time?"))
		if a == inside {
			buf := make([]byte, 64)
			_ = c.SetDeadline(time.Now().Add(60 * time.Second))
			if n, err := c.Read(buf); err != nil || string(buf[:n]) != "re: time?" {
				t.Errorf("got %q, %v", buf[:n], err)
			}
		}
		_ = c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		if err := w.Guest.Ping(ctx, netip.MustParseAddr(a), []byte("hello")); (err == nil) != (a == inside) {
			t.Errorf("ping %s: %v", a, err)
		}
		cancel()
	}
	want := []string{"udp " + inside + ":123", "icmp " + inside + ":0"}
	if d := w.Dialled(); !slices.Equal(d, want) {
		t.Errorf("dialled %v, want %v", d, want)
	}
}

// A name that loses its range loses its flows and its address, whatever kind of flow. The twin is a policy that spells the
// range in another way: everything goes on.
func TestI5_ReloadEndsWhatLeavesItsRange(t *testing.T) {
	t.Parallel()
	rules := func(within string) string {
		of := strings.ReplaceAll(wikiOf, `["10.20.0.0/16"]`, within)
		return of + "paths = [\"/pages/**\"]\n" + strings.ReplaceAll(of, `"wiki"`, `"tcp"`) + "protocol = \"tcp\"\nports = [1000]\n" +
			strings.ReplaceAll(of, `"wiki"`, `"udp"`) + "protocol = \"udp\"\nports = [123]\n"
	}
	for within, stay := range map[string]bool{`["10.20.1.0/24"]`: false, `["10.20.0.0/17", "10.20.128.0/17"]`: true} {
		w := gatewaytest.Start(t, rules(`["10.20.0.0/16"]`))
		w.Record("wiki.corp.example. 60 IN A " + inside)
		echo := func(b []byte) []byte { return b }
		w.ServeUDP(inside+":123", echo)
		w.Serve(inside+":1000", func(c net.Conn) { _, _ = io.Copy(c, c) })
		next := make(chan struct{})
		w.ServeHTTPS(inside+":443", w.CA.Certificate("wiki.corp.example"), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, "a")
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-next:
				_, _ = io.WriteString(rw, "b")
			case <-r.Context().Done():
			}
		}))
		relayed, err := w.Dial(w.Lookup("wiki.corp.example"), 1000)
		if err != nil {
			t.Fatal(err)
		}
		datagrams, err := w.Guest.DialUDP(netip.MustParseAddrPort(inside + ":123"))
		if err != nil {
			t.Fatal(err)
		}
		once := func(c io.ReadWriter) error {
			if _, err := io.WriteString(c, "x"); err != nil {
				return err
			}
			_, err := c.Read(make([]byte, 9))
			return err
		}
		for _, c := range []net.Conn{relayed, datagrams} {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(60 * time.Second))
			if err := once(c); err != nil {
				t.Fatal(err)
			}
		}
		bodies := map[string]io.Reader{}
		for way, c := range map[string]*http.Client{"an inspected flow": w.Client(), "the explicit proxy": proxied(w, w.Gateway.Link().Gateway4)} {
			resp, err := c.Get("https://wiki.corp.example/pages/x")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			bodies[way] = resp.Body
			if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil {
				t.Fatal(way, err)
			}
		}
		dialled := len(w.Dialled())
		if err := w.Gateway.Reload(gatewaytest.Policy(t, rules(within))); err != nil {
			t.Fatal(err)
		}
		if !stay {
			w.Audit.Wait(t, audit.FlowClose, 4)
		}
		close(next)
		for way, body := range bodies {
			if rest, err := io.ReadAll(body); (err == nil && string(rest) == "b") != stay {
				t.Errorf("%s, within %s: %q, %v", way, within, rest, err)
			}
		}
		if err := once(relayed); (err == nil) != stay || err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("a relayed flow, within %s: %v", within, err)
		}
		if _, err := io.WriteString(datagrams, "y"); stay {
			if err == nil {
				_, err = datagrams.Read(make([]byte, 9))
			}
			if err != nil {
				t.Errorf("a UDP flow, within %s: %v", within, err)
			}
		}
		if m := w.Resolve("wiki.corp.example", dns.TypeA); (m.Rcode == dns.RcodeSuccess) != stay {
			t.Errorf("within %s: got %v", within, m)
		}
		if c, err := w.Dial(netip.MustParseAddr(inside), 1000); (err == nil) != stay {
			t.Errorf("a new flow, within %s: %v", within, err)
		} else if err == nil {
			_ = c.Close()
		}
		if after := w.Dialled()[dialled:]; len(after) > 0 && !stay {
			t.Errorf("dialled %v after the reload", after)
		}
	}
}

// What leads inside is reached directly, and not by the proxy that leads outside.
func TestI5_ViaReachesNoInternalNames(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, pagesOf+labOf+"[tls]\nvia = \"http://10.9.9.9:3128\"\n")
	w.Record("wiki.corp.example. 60 IN A " + inside)
	server := &recorded{}
	w.ServeHTTPS(inside+":443", w.CA.Certificate("wiki.corp.example"), server)
	p := &corporate{}
	p.serve(t, w, nil)
	if status, _ := request(t, w.Client(), http.MethodPut, "https://wiki.corp.example/admin"); status != http.StatusForbidden {
		t.Errorf("PUT outside of the paths: %d", status)
	}
	if status, _ := request(t, w.Client(), http.MethodGet, "https://wiki.corp.example/pages/x"); status != http.StatusOK {
		t.Errorf("GET: %d", status)
	}
	if got := p.targets(); len(got) != 0 || !slices.Equal(server.take(), []string{"GET /pages/x"}) {
		t.Errorf("the proxy was asked for %v", got)
	}
}
