package gateway_test

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// disguises are first bytes that are no HTTP or TLS by the letter, and that some server takes for it.
var disguises = map[string]string{
	"line end in front":      "\r\nGET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"line feed in front":     "\nGET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"blank in front":         " GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"method in lower case":   "get / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"long method":            strings.Repeat("A", 30) + " / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"method of other signs":  "M.SEARCH! / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"two blanks":             "GET  / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"tab":                    "GET\t/ HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"blank at the end":       "GET / HTTP/1.1 \r\nHost: evil.example.com\r\n\r\n",
	"version in lower case":  "GET / http/1.1\r\nHost: evil.example.com\r\n\r\n",
	"HTTP/0.9":               "GET http://evil.example.com/\r\n\r\n",
	"PROXY protocol":         "PROXY TCP4 192.0.2.1 192.0.2.2 1 443\r\nGET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"PROXY protocol 2":       "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00GET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"byte order mark":        "\xef\xbb\xbfGET / HTTP/1.1\r\nHost: evil.example.com\r\n\r\n",
	"SSLv2 hello":            "\x80\x2e\x01\x03\x01" + strings.Repeat("\x00", 43),
	"alert before the hello": "\x15\x03\x01\x00\x02\x01\x00\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
	"another TLS message":    "\x16\x03\x01\x00\x04\x00\x00\x00\x00",
}

// Where all HTTP and TLS are looked into, what servers may take for either isn't relayed; each policy has a twin
// in which it is.
func TestI7_WebTrafficInDisguiseIsRefused(t *testing.T) {
	t.Parallel()
	const public, all, none = "[egress]\ndefault = \"public\"\n", "[tls]\ninspect = \"all\"\n", "[tls]\ninspect = \"none\"\n"
	const corp = "[hosts]\n\"in.corp.example\" = \"10.0.0.5\"\n"
	for name, tt := range map[string]struct{ policy, twin, host string }{
		"public":  {public + denyEvil + all, public + denyEvil, "www.example.com"},
		"[hosts]": {corp + denyEvil, corp + denyEvil + none, "in.corp.example"},
	} {
		guarded, addr := answeringWorld(t, tt.policy, tt.host)
		twin, twinAddr := answeringWorld(t, tt.twin, tt.host)
		for form, first := range disguises {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				if said(t, guarded, addr, first) {
					t.Error("the server got it")
				}
				if !said(t, twin, twinAddr, first) {
					t.Error("uninspected, the server didn't get it either: this test shows nothing")
				}
			})
		}
		for _, first := range []string{"SSH-2.0-client\r\n", "\x00\x00\x00\x08\x04\xd2\x16\x2f"} {
			if !said(t, guarded, addr, first) {
				t.Errorf("%s: another protocol, %q, was refused", name, first)
			}
		}
	}
}

// answeringWorld has a server at host that answers whatever it gets on port 8443.
func answeringWorld(t *testing.T, policy, host string) (*gatewaytest.World, netip.Addr) {
	t.Helper()
	w := gatewaytest.Start(t, policy)
	w.Record(strings.Split(frontNames, "\n")...)
	for _, at := range []string{site + ":8443", "10.0.0.5:8443"} {
		w.Serve(at, func(c net.Conn) {
			if n, _ := c.Read(make([]byte, 1)); n > 0 {
				_, _ = io.WriteString(c, "heard")
			}
		})
	}
	w.Resolve(host, dns.TypeA)
	return w, w.Lookup(host)
}

// said reports whether the server got what a client says first.
func said(t *testing.T, w *gatewaytest.World, addr netip.Addr, first string) bool {
	t.Helper()
	c, err := w.Dial(addr, 8443)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.WriteString(c, first); err != nil {
		return false
	}
	b, _ := io.ReadAll(io.LimitReader(c, 5))
	return string(b) == "heard"
}
