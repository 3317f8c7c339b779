package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/echo"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// toProxy is a guest's connection to the explicit proxy.
func toProxy(t *testing.T, w *gatewaytest.World) net.Conn {
	t.Helper()
	c, err := w.Dial(w.Gateway.Link().Gateway4, gateway.ProxyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return c
}

// ask sends raw bytes to the explicit proxy and reads one answer.
func ask(t *testing.T, w *gatewaytest.World, raw string) (*http.Response, string) {
	t.Helper()
	c := toProxy(t, w)
	defer c.Close()
	if _, err := io.WriteString(c, raw); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return resp, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return resp, string(body)
}

// proxied is the world's client told to use the explicit proxy at addr.
func proxied(w *gatewaytest.World, addr netip.Addr) *http.Client {
	c := w.Client()
	tr, _ := c.Transport.(*http.Transport)
	tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: netip.AddrPortFrom(addr, gateway.ProxyPort).String()})
	return c
}

func get(t *testing.T, c *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

const proxyPolicy = `
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "https"
[[egress.allow]]
name = "plain"
hosts = ["plain.example.com"]
protocol = "http"
paths = ["/open/**"]
[[egress.allow]]
name = "opaque"
hosts = ["opaque.example.com"]
protocol = "tcp"
ports = [9]
[secrets.TOKEN]
from = "command:printf real-value-of-the-token-0123456789"
hosts = ["api.example.com"]
in = ["header:Authorization"]
placeholder = "tok_{24}"
`

func TestI6_ProxyResolvesPinsAndInspects(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, proxyPolicy)
	w.Record("api.example.com. 60 IN A "+site, "plain.example.com. 60 IN A "+site, "opaque.example.com. 60 IN A "+site)
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), echo.Handler())
	w.ServeHTTP(site+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(rw, "%s %s%s proxy=%q", r.Method, r.Host, r.RequestURI, r.Header["Proxy-Authorization"])
	}))
	w.Serve(site+":9", func(c net.Conn) { _, _ = io.WriteString(c, "opaque") })
	placeholder := w.Gateway.Placeholders()["TOKEN"]
	for _, gw := range []netip.Addr{w.Gateway.Link().Gateway4, w.Gateway.Link().Gateway6} {
		c := proxied(w, gw)
		status, body := get(t, c, "https://api.example.com/x", "Authorization", "Bearer "+placeholder)
		if status != http.StatusOK || !strings.Contains(body, placeholder) || strings.Contains(body, "real-value") {
			t.Errorf("https through %v: %d %s", gw, status, body)
		}
		if status, body := get(t, c, "http://plain.example.com/open/x?y=z", "Proxy-Authorization", "Basic eDp5"); status != http.StatusOK ||
			body != `GET plain.example.com/open/x?y=z proxy=[]` {
			t.Errorf("http through %v: %d %s", gw, status, body)
		}
		if status, body := get(t, c, "http://plain.example.com/closed"); status != http.StatusForbidden || !strings.Contains(body, "path_not_allowed") {
			t.Errorf("a path that no rule allows: %d %s", status, body)
		}
		if status, body := get(t, c, "http://plain.example.com/open/", "X-Api-Key", placeholder); status != http.StatusForbidden {
			t.Errorf("a placeholder over plain HTTP: %d %s", status, body)
		}
	}
	conn := toProxy(t, w)
	_, _ = io.WriteString(conn, "CONNECT opaque.example.com:9 HTTP/1.1\r\nHost: opaque.example.com:9\r\n\r\n")
	if got, _ := io.ReadAll(conn); string(got) != "HTTP/1.1 200 Connection established\r\n\r\nopaque" {
		t.Errorf("a tcp rule: %q", got)
	}
	for _, d := range w.Dialled() {
		if !strings.HasPrefix(d, "tcp "+site) {
			t.Errorf("dialled %s", d)
		}
	}
	for _, e := range w.Audit.Events(audit.FlowOpen) {
		if e.Dst != siteAddr || len(e.Names) != 1 {
			t.Errorf("audit line %+v, want the destination and the one name that was asked for", e)
		}
	}
}

func TestI5_ProxyOpensNoOtherAddress(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[egress]\ndefault = \"public\"\n")
	w.Record("rebind.example. 0 IN A 127.0.0.1", "rebind.example. 0 IN A 10.0.0.1")
	hosts := []string{
		"127.0.0.1", "127.1.2.3", "0.0.0.0", "0.0.0.1", "[::]", "[::1]", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1",
		"[fc00::1]", "[fec0::1]", "169.254.169.254", "169.254.1.1", "[fe80::1]", "168.63.129.16", "100.100.100.200", "[fd00:ec2::254]",
		"192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"[100::1]", "[2001:db8::1]", "[3fff::1]", "[ff02::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]",
		"[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[2606:2800::5efe:a00:1]",
		"localhost", "x.localhost", "printer", "metadata.google.internal", "instance-data.ec2.internal", "rebind.example",
		w.Gateway.Link().Gateway4.String(), "[" + w.Gateway.Link().Gateway6.String() + "]",
		// Other spellings of addresses: no name, and no address that every reader would take for the same.
		"0x7f000001", "2130706433", "0177.0.0.1", "127.1", "127.0.0.1.", "[fe80::1%25eth0]", "[fe80::1%eth0]", "::1", "[127.0.0.1]", "0x7f.1",
	}
	for _, host := range hosts {
		for _, port := range []string{"80", "443", "3128"} {
			for _, raw := range []string{
				"CONNECT " + host + ":" + port + " HTTP/1.1\r\nHost: " + host + ":" + port + "\r\n\r\n",
				"GET http://" + host + ":" + port + "/ HTTP/1.1\r\nHost: " + host + ":" + port + "\r\n\r\n",
			} {
				resp, body := ask(t, w, raw)
				var said struct{ Reason, Message string }
				if err := json.Unmarshal([]byte(body), &said); err != nil || said.Reason == "" || said.Message == "" || resp.Header.Get("X-Msb-Reason") != said.Reason {
					t.Errorf("%q: %d %q (%v), want JSON with the reason", raw, resp.StatusCode, body, err)
				}
				if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%q: %d %s", raw, resp.StatusCode, body)
				}
			}
		}
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
}

func TestI9_ProxyRefusesAmbiguousRequests(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, proxyPolicy)
	w.Record("api.example.com. 60 IN A "+site, "plain.example.com. 60 IN A "+site)
	const host = "Host: plain.example.com\r\n"
	for _, raw := range []string{
		"GET / HTTP/1.1\r\n" + host + "\r\n",
		"GET http://plain.example.com/open/ HTTP/1.1\n" + host + "\r\n\r\n",
		"GET http://plain.example.com/open/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET http://plain.example.com/open/ HTTP/1.1\r\n" + host + host + "\r\n",
		"GET http://plain.example.com/open/ HTTP/1.1\r\n" + host + "X: y\r\n folded\r\n\r\n",
		"GET http://plain.example.com/open/ HTTP/1.1\r\n" + host + "X : y\r\n\r\n",
		"GET http://plain.example.com/open/ HTTP/2.0\r\n" + host + "\r\n",
		"GET  http://plain.example.com/open/ HTTP/1.1\r\n" + host + "\r\n",
		"GET http://plain.example.com/open/#x HTTP/1.1\r\n" + host + "\r\n",
		"GET http://user@plain.example.com/open/ HTTP/1.1\r\n" + host + "\r\n",
		"GET http://plain.example.com@api.example.com/ HTTP/1.1\r\n" + host + "\r\n",
		"GET http://plain.example.com\\.evil/ HTTP/1.1\r\n" + host + "\r\n",
		"GET https://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
		"GET ftp://plain.example.com/ HTTP/1.1\r\n" + host + "\r\n",
		"POST http://plain.example.com/open/ HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"CONNECT api.example.com HTTP/1.1\r\n\r\n",
		"CONNECT api.example.com:0 HTTP/1.1\r\n\r\n",
		"CONNECT api.example.com:65536 HTTP/1.1\r\n\r\n",
		"CONNECT api.example.com:+443 HTTP/1.1\r\n\r\n",
		"CONNECT api.example.com:443:443 HTTP/1.1\r\n\r\n",
		"CONNECT http://api.example.com:443 HTTP/1.1\r\n\r\n",
		"CONNECT api.example.com:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
		"CONNECT api.example.com:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
		"CONNECT api.example.com:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"CONNECT api.example.com:443 HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"\x16\x03\x01\x00\x05hello",
		"GET http://plain.example.com/open/ HTTP/1.1\r\nX: " + strings.Repeat("a", 65<<10),
	} {
		resp, body := ask(t, w, raw)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, `"message":"`) {
			t.Errorf("%.90q: %d %s, want 400 with the reason", raw, resp.StatusCode, body)
		}
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
	lines := w.Audit.Events(audit.FlowOpen)
	if len(lines) < 20 || slices.ContainsFunc(lines, func(e audit.Event) bool { return e.Action == "allow" }) {
		t.Errorf("%d audit lines, want one for each that can't be read: %+v", len(lines), lines)
	}
}

func TestProxyPassesBytesBehindTheHead(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, proxyPolicy)
	w.Record("plain.example.com. 60 IN A " + site)
	bodies := make(chan string, 1)
	w.ServeHTTP(site+":80", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
	}))
	resp, body := ask(t, w, "POST http://plain.example.com/open/x HTTP/1.1\r\nHost: plain.example.com\r\nContent-Length: 5\r\n\r\nhello")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	if body := <-bodies; body != "hello" {
		t.Errorf("the server got %q of what came with the head", body)
	}
}

func TestI7_TunnelsKeepTheirName(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"api.example.com\", \"b.example.com\"]\nprotocol = \"tls\"\nports = [443]\n")
	w.Record("api.example.com. 60 IN A "+site, "b.example.com. 60 IN A "+site)
	serveTLS(w, site+":443", "the site", "api.example.com", "b.example.com")
	w.Lookup("b.example.com")
	if status, body := get(t, proxied(w, w.Gateway.Link().Gateway4), "https://api.example.com/"); status != http.StatusOK || body != "the site" {
		t.Errorf("%d %s", status, body)
	}
	// The other name is allowed and pinned to the same address; this tunnel isn't for it.
	c := proxied(w, w.Gateway.Link().Gateway4)
	tr, _ := c.Transport.(*http.Transport)
	tr.TLSClientConfig.ServerName = "b.example.com"
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example.com/", nil)
	if resp, err := c.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("another SNI than the tunnel's name: %d", resp.StatusCode)
	} else if !strings.Contains(err.Error(), "access denied") {
		t.Errorf("another SNI than the tunnel's name: %v, want the alert access denied", err)
	}
	if n := len(w.Dialled()); n != 1 {
		t.Errorf("%d connections left, want 1", n)
	}
}

// A name that the policy allows is refused with the resolver's own reason.
func TestI11_ProxyNamesTheRefusingBound(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\nhosts = [\"*.example.com\"]\nprotocol = \"https\"\n"
	for name, tt := range map[string]struct{ limits, host, want string }{
		"the budget":        {"[limits]\negress_bytes = \"100\"\n", "www.example.com", "limit"},
		"a rate":            {"[limits]\ndns_per_second = 1\n", "www.example.com", "limit"},
		"addresses (twin)":  {"", "inside.example.com", "rebinding"},
		"the policy (twin)": {"[limits]\negress_bytes = \"100\"\n", "www.example.net", "no_rule"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, rule+tt.limits)
			w.Record("www.example.com. 60 IN A "+site, "inside.example.com. 60 IN A 10.0.0.5")
			if name == "a rate" {
				for i := 0; w.Resolve(fmt.Sprintf("n%d.example.com", i), dns.TypeA).Rcode != dns.RcodeServerFailure; i++ {
				}
			}
			resp, body := ask(t, w, "CONNECT "+tt.host+":443 HTTP/1.1\r\n\r\n")
			if resp.StatusCode != http.StatusForbidden || resp.Header.Get("X-Msb-Reason") != tt.want || !strings.Contains(body, tt.want) {
				t.Errorf("%d %q %s, want 403 and %s", resp.StatusCode, resp.Header.Get("X-Msb-Reason"), body, tt.want)
			}
		})
	}
}

func TestI6_Port53TunnelsEndInTheResolver(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[egress]\ndefault = \"public\"\n")
	c := toProxy(t, w)
	_, _ = io.WriteString(c, "CONNECT "+site+":53 HTTP/1.1\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), &http.Request{Method: http.MethodConnect}); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", resp, err)
	}
	q := new(dns.Msg)
	q.SetQuestion("metadata.google.internal.", dns.TypeA)
	d := &dns.Conn{Conn: c}
	if err := d.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	if m, err := d.ReadMsg(); err != nil || m.Rcode != dns.RcodeNameError {
		t.Errorf("got %v, %v, want NXDOMAIN by the sandbox's own resolver", m, err)
	}
	if n := len(w.Dialled()); n != 0 {
		t.Errorf("dialled %v", w.Dialled())
	}
}

func TestAnUnreachableServerIsSaidSo(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, proxyPolicy)
	w.Record("opaque.example.com. 60 IN A " + site)
	resp, body := ask(t, w, "CONNECT opaque.example.com:9 HTTP/1.1\r\n\r\n")
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "upstream_refused") {
		t.Errorf("a closed port: %d %s", resp.StatusCode, body)
	}
	resp, body = ask(t, w, "CONNECT nowhere.example.com:9 HTTP/1.1\r\n\r\n")
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "no_rule") {
		t.Errorf("a name that no rule allows: %d %s", resp.StatusCode, body)
	}
	resp, body = ask(t, w, "CONNECT api.example.com:443 HTTP/1.1\r\n\r\n")
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "upstream_name") {
		t.Errorf("a name without an address: %d %s", resp.StatusCode, body)
	}
}

func FuzzExplicitProxy(f *testing.F) {
	f.Add([]byte("CONNECT api.example.com:443 HTTP/1.1\r\nHost: api.example.com:443\r\n\r\n"))
	f.Add([]byte("GET http://plain.example.com/open/ HTTP/1.1\r\nHost: plain.example.com\r\n\r\n"))
	f.Add([]byte("GET http://127.0.0.1:80/ HTTP/1.1\r\n\r\n"))
	f.Add([]byte("CONNECT [::ffff:7f00:1]:80 HTTP/1.0\r\n\r\n"))
	w := gatewaytest.Start(f, proxyPolicy)
	w.Record("api.example.com. 60 IN A "+site, "plain.example.com. 60 IN A "+site)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := w.Dial(w.Gateway.Link().Gateway4, gateway.ProxyPort)
		if err != nil {
			return // the bound on connections
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		_, _ = c.Write(raw)
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, c)
		for _, d := range w.Dialled() {
			if d != "tcp "+site+":443" && d != "tcp "+site+":80" {
				t.Errorf("dialled %s", d)
			}
		}
	})
}
