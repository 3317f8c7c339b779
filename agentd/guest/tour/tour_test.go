//go:build linux

package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// echoServer answers as the gateway's service; swap is what it finds in place
// of the token.
func echoServer(t *testing.T, swap string) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		if swap != "" {
			got = "Bearer " + swap
		}
		sum := sha256.Sum256([]byte(got))

		json.NewEncoder(w).Encode(echoAnswer{Proto: r.Proto, HeaderSHA256: map[string]string{"Authorization": hex.EncodeToString(sum[:])}})
	}))
	t.Cleanup(s.Close)
	return s
}

// dnsServer answers every question with one code and text.
func dnsServer(t *testing.T, rcode dnsmessage.RCode, ede string) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			var q dnsmessage.Message
			if q.Unpack(buf[:n]) != nil || len(q.Additionals) != 1 {
				continue // without EDNS there is no way to say why
			}
			a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RCode: rcode}, Questions: q.Questions}
			if rcode == dnsmessage.RCodeSuccess {
				a.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: q.Questions[0].Name, Class: dnsmessage.ClassINET},
					Body:   &dnsmessage.AResource{A: [4]byte{192, 0, 2, 1}},
				}}
			}
			var opt dnsmessage.ResourceHeader
			_ = opt.SetEDNS0(1232, rcode, false)
			a.Additionals = []dnsmessage.Resource{{Header: opt, Body: &dnsmessage.OPTResource{
				Options: []dnsmessage.Option{{Code: codeEDE, Data: append([]byte{0, 15}, ede...)}},
			}}}
			if b, err := a.Pack(); err == nil {
				_, _ = conn.WriteToUDPAddrPort(b, from)
			}
		}
	}()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort() // a UDP socket
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newTour(t *testing.T, s *httptest.Server, resolver netip.AddrPort) *tour {
	t.Helper()
	return &tour{
		dialer: &net.Dialer{Timeout: time.Minute}, client: s.Client(), echoURL: s.URL,
		resolver: resolver, token: "msb_placeholder", backend: "qemu",
	}
}

func TestTourSaysWhatASandboxDoes(t *testing.T) {
	t.Parallel()
	tr := newTour(t, echoServer(t, "the real value"), dnsServer(t, dnsmessage.RCodeNameError, "rule default: not allowed"))
	for _, tt := range []struct {
		row  row
		says []string
	}{
		{tr.machine(), []string{"Linux", "qemu"}},
		{tr.allowed(t.Context()), []string{"answered in"}},
		{tr.refused(t.Context(), "private", closedPort(t)), []string{"refused in", "connection refused"}},
		{tr.name(t.Context()), []string{"DNS NXDOMAIN: rule default: not allowed"}},
		{tr.secret(t.Context()), []string{"received the real value", "msb_placeholder"}},
	} {
		if !tt.row.ok {
			t.Errorf("%s is unexpected: %s", tt.row.what, tt.row.found)
		}
		for _, s := range tt.says {
			if !strings.Contains(tt.row.found, s) {
				t.Errorf("%s does not say %q: %s", tt.row.what, s, tt.row.found)
			}
		}
	}
}

func TestTourNoticesWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := echoServer(t, "")
	tr := newTour(t, s, dnsServer(t, dnsmessage.RCodeSuccess, ""))
	down := newTour(t, s, netip.AddrPort{})
	down.echoURL, down.token = "https://"+closedPort(t), ""
	for name, r := range map[string]row{
		"the secret came through as sent": tr.secret(t.Context()),
		"no secret":                       down.secret(t.Context()),
		"the name resolves":               tr.name(t.Context()),
		"no resolver":                     down.name(t.Context()),
		"the address is reachable":        tr.refused(t.Context(), "private", s.Listener.Addr().String()),
		"the echo is down":                down.allowed(t.Context()),
	} {
		if r.ok {
			t.Errorf("%s: passed: %s", name, r.found)
		}
	}
}

func TestResolverIsReadFromResolvConf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("# x\nsearch a\nnameserver bad\nnameserver fd00::1\nnameserver 10.0.0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := resolverFrom(path); got != netip.MustParseAddrPort("[fd00::1]:53") {
		t.Errorf("got %v", got)
	}
	if resolverFrom(path + "x").IsValid() {
		t.Error("a server out of nothing")
	}
}

func TestGetSendsTheAskedHost(t *testing.T) {
	hosts := make(chan string, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host }))
	defer s.Close()
	if err := get(t.Context(), []string{"-H", "host:  other.example", s.URL}); err != nil {
		t.Fatal(err)
	}
	if got := <-hosts; got != "other.example" {
		t.Errorf("the server got a request for %q", got)
	}
}
