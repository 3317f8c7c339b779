package gateway_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
)

// opaqueFront lets the same bytes out and looks into nothing (twin).
const opaqueFront = "[[egress.allow]]\nhosts = [\"www.example.com\", \"evil.example.com\"]\nprotocol = \"tcp\"\nports = [443]\n"

// A request names a host three times on its way through a proxy: in CONNECT, in the SNI and in Host.
func TestI7_ProxiedRequestsDontFront(t *testing.T) {
	t.Parallel()
	const www, evil, via = "www.example.com", "evil.example.com", "[tls]\nvia = \"http://10.9.9.9:3128\"\n"
	for name, tt := range map[string]struct{ connect, sni, host string }{
		"allowed":         {www, www, www},
		"Host":            {www, www, evil},
		"SNI":             {www, evil, www},
		"SNI and Host":    {www, evil, evil},
		"CONNECT":         {evil, www, www},
		"SNI is allowed":  {evil, www, evil},
		"Host is allowed": {evil, evil, www},
		"all of them":     {evil, evil, evil},
	} {
		for way, explicit := range map[string]bool{"explicit": true, "via": false, "explicit and via": true} {
			if !explicit && tt.connect != tt.sni {
				continue // without CONNECT, the address is all that the guest says first
			}
			for version, h2 := range map[string]bool{"h1": false, "h2": true} {
				t.Run(name+"/"+way+"/"+version, func(t *testing.T) {
					t.Parallel()
					more := ""
					if strings.Contains(way, "via") {
						more = via
					}
					send := func(policy, connect, sni, host string) (int, string) {
						w := front(t, policy)
						(&corporate{}).serve(t, w, map[string]string{www + ":443": site + ":443", evil + ":443": site + ":443"})
						c := frontClient(t, w, h2)
						tr, _ := c.Transport.(*http.Transport)
						t.Cleanup(tr.CloseIdleConnections)
						tr.TLSClientConfig.ServerName = sni
						if explicit {
							tr.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: netip.AddrPortFrom(w.Gateway.Link().Gateway4, gateway.ProxyPort).String()})
						} else {
							tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return w.Dial(siteAddr, 443) }
						}
						return askFor(t, c, http.MethodPut, "https://"+connect+"/", host)
					}
					status, body := send(allowWWW+denyEvil+more, tt.connect, tt.sni, tt.host)
					if ok := status == http.StatusOK; ok != (name == "allowed") {
						t.Errorf("%d %s", status, body)
					}
					if status, body := send(allowWWW+denyEvil+more, www, www, www); status != http.StatusOK || body != www {
						t.Errorf("what is allowed: %d %s", status, body)
					}
					if status, body := send(opaqueFront, tt.connect, tt.sni, tt.host); status != http.StatusOK || body != tt.host {
						t.Errorf("where nothing is denied: %d %s", status, body)
					}
				})
			}
		}
	}
}

// A kept connection's next request is judged by the policy that is in force then.
func TestI16_KeptConnectionsFollowReloads(t *testing.T) {
	t.Parallel()
	const all = "[tls]\ninspect = \"all\"\n"
	const denyWWW = "[[egress.deny]]\nhosts = [\"www.example.com\"]\n"
	wild := strings.ReplaceAll(allowWWW, "www.ex", "*.ex")
	for name, next := range map[string]string{
		"nothing is allowed":      "",
		"the name is denied":      wild + denyWWW + all,
		"the address is denied":   allowWWW + "[[egress.deny]]\ncidrs = [\"" + site + "/32\"]\n" + all,
		"the method is denied":    allowWWW + denyWWW + "methods = [\"PUT\"]\n" + all,
		"the path is denied":      allowWWW + denyWWW + "paths = [\"/x/**\"]\n" + all,
		"other methods":           allowWWW + "methods = [\"GET\"]\n" + all,
		"other paths":             allowWWW + "paths = [\"/only/**\"]\n",
		"another port":            allowWWW + "protocol = \"https\"\nports = [8443]\n" + all,
		"denied, and bypassed":    wild + denyWWW + "[tls]\nbypass = [\"www.example.com\"]\n",
		"another name is allowed": strings.ReplaceAll(allowWWW, "www.", "other.") + all,
		"still allowed (twin)":    allowWWW + denyEvil + all,
	} {
		for version, h2 := range map[string]bool{"h1": false, "h2": true} {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				w := front(t, allowWWW+all)
				c := frontClient(t, w, h2)
				tr, _ := c.Transport.(*http.Transport)
				dial, dialled := tr.DialContext, 0
				tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if dialled++; dialled > 1 {
						return nil, errors.New("the connection was not kept")
					}
					return dial(ctx, network, addr)
				}
				put := func() (int, string) {
					return askFor(t, c, http.MethodPut, "https://www.example.com/x/y", "www.example.com")
				}
				if status, body := put(); status != http.StatusOK {
					t.Fatalf("before the reload: %d %s", status, body)
				}
				if err := w.Gateway.Reload(gatewaytest.Policy(t, next)); err != nil {
					t.Fatal(err)
				}
				if status, body := put(); (status == http.StatusOK) != strings.Contains(name, "twin") {
					t.Errorf("after the reload: %d %s", status, body)
				}
			})
		}
	}
}

// Each target leads some server to /evil, and each trailer names another host.
func TestI7_PathFormsDontLeaveRules(t *testing.T) {
	t.Parallel()
	const only = "paths = [\"/open/**\"]\n"
	texts := map[string]string{"trailer": "POST /open/ HTTP/1.1\r\nHost: www.example.com\r\nTrailer: Host\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: evil.example.com\r\n\r\n"}
	for _, target := range []string{
		"/evil", "//evil", "/./evil", "/open/../evil", "/open/%2e%2e/evil", "/open/.%2E/evil", "/open/..%2fevil", "/open%2f..%2fevil", "/open/..;/evil",
		"/open/..;x=y/evil", "/open/;/../evil", "/open//../evil", "/open//..//../evil", "/open/..%5cevil", "/open\\..\\evil", "/open/%252e%252e/evil",
		"/open/%c0%ae%c0%ae/evil", "/open/..%00/evil", "/open/..%09/evil", "/evil/../open/", "/evil;/../open/", "/OPEN/evil", "/open;/evil", "/%6fpen/../evil",
		"/open/../../evil?/open/", "/evil#/open/", "*/evil", "evil", "?/evil", "https://www.example.com/evil", "https://www.example.com:443/open/../evil",
		"/open/%u002e%u002e/evil", "/open/\u2025/../evil", "/open/..?/../evil/..;/",
	} {
		texts[target] = "GET " + target + " HTTP/1.1\r\nHost: www.example.com\r\n\r\n"
	}
	for name, text := range texts {
		text += "GET /open/ HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\nX-End: " + lastMark + "\r\n\r\n"
		t.Run(strings.ReplaceAll(name, "/", "|"), func(t *testing.T) {
			t.Parallel()
			send := func(c *tls.Conn) []byte { return h1Form(t, c, text) }
			if _, got := rawFront(t, allowWWW+only, send, nil); bytes.Contains(got, []byte("evil")) {
				t.Errorf("the server got %q", got)
			}
			if _, got := rawFront(t, allowWWW+"[tls]\ninspect = \"none\"\n", send, nil); string(got) != text {
				t.Errorf("uninspected, the server got %q", got)
			}
		})
	}
}

// The same targets over HTTP/2.
func TestI7_HTTP2PathsDontLeaveRules(t *testing.T) {
	t.Parallel()
	const only = "paths = [\"/open/**\"]\n"
	for _, request := range []string{
		"GET /open/", "GET /evil", "GET //evil", "GET /open/../evil", "GET /open/%2e%2e/evil", "GET /open/..%2fevil", "GET /open/..;/evil", "GET /open//../evil",
		"GET /open\\..\\evil", "GET /open/%252e%252e/evil", "GET /open/%c0%ae%c0%ae/evil", "GET /OPEN/evil", "GET evil", "GET */evil", "GET ?/evil", "GET /evil#/open/",
		"OPTIONS *", "OPTIONS /evil", "GET *", "TRACE /evil", "PRI *",
	} {
		t.Run(strings.ReplaceAll(request, "/", "|"), func(t *testing.T) {
			t.Parallel()
			method, path, _ := strings.Cut(request, " ")
			send := func(c *tls.Conn) []byte {
				return h2Form(t, c, ":method "+method+",:scheme https,:path "+path+",:authority www.example.com,x-end "+lastMark)
			}
			_, got := rawFront(t, allowWWW+only, send, []string{"h2"})
			if passes := request == "GET /open/"; passes != bytes.HasPrefix(got, []byte("GET /open/ HTTP/1.1\r\n")) || !passes && len(got) > 0 {
				t.Errorf("the server got %q", got)
			}
			if sent, got := rawFront(t, allowWWW+"[tls]\ninspect = \"none\"\n", send, []string{"h2"}); !bytes.Equal(sent, got) {
				t.Errorf("uninspected, the server got %q", got)
			}
		})
	}
}

// cutFirst sends a client's first record in pieces: segments, or records of their own.
type cutFirst struct {
	net.Conn
	records, done bool
}

func (c *cutFirst) Write(b []byte) (int, error) {
	if c.done || len(b) < 5 {
		return c.Conn.Write(b)
	}
	c.done = true
	rest, head := b, []byte(nil)
	if c.records {
		rest, head = b[5:], []byte{b[0], b[1], b[2], 0, 1}
	}
	for _, piece := range rest {
		if _, err := c.Conn.Write(append(bytes.Clone(head), piece)); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// However a hello is sent, the request behind it is judged.
func TestI7_HelloFormsDontFront(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sni     string
		protos  []string
		version uint16
		cut     string
	}{
		"plain":             {sni: "www.example.com"},
		"no SNI":            {},
		"another SNI":       {sni: "evil.example.com"},
		"upper case":        {sni: "WWW.EXAMPLE.COM"},
		"upper case, other": {sni: "EVIL.example.com"},
		"unknown ALPN":      {sni: "www.example.com", protos: []string{"x-other"}},
		"unknown and known": {sni: "www.example.com", protos: []string{"x-other", "http/1.1"}},
		"TLS 1.2":           {sni: "www.example.com", version: tls.VersionTLS12},
		"segments":          {sni: "www.example.com", cut: "segments"},
		"records":           {sni: "www.example.com", cut: "records"},
		"no SNI, records":   {cut: "records"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			send := func(policy, host string) string {
				w := front(t, policy)
				raw, err := w.Dial(siteAddr, 443)
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				_ = raw.SetDeadline(time.Now().Add(60 * time.Second))
				if tt.cut != "" {
					raw = &cutFirst{Conn: raw, records: tt.cut == "records"}
				}
				c := tls.Client(raw, &tls.Config{ServerName: tt.sni, NextProtos: tt.protos, MaxVersion: tt.version, InsecureSkipVerify: true})
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
				answer, _ := io.ReadAll(c)
				return string(answer)
			}
			const www, evil = "www.example.com", "evil.example.com"
			if got := send(allowWWW+denyEvil, evil); strings.HasPrefix(got, "HTTP/1.1 200") {
				t.Errorf("the denied host answered %q", got)
			}
			if got := send(allowWWW+denyEvil, www); strings.HasSuffix(got, www) != (strings.EqualFold(tt.sni, www) && name != "unknown ALPN") {
				t.Errorf("the allowed host answered %q", got)
			}
			if got := send(opaqueFront, evil); name != "unknown ALPN" && !strings.HasSuffix(got, "evil.example.com") {
				t.Errorf("where nothing is denied: %q", got)
			}
		})
	}
}

// With a rule that denies a name, a preset's servers can be asked for it by exactly the rules that check names.
func TestI7_PresetsFrontAsWarned(t *testing.T) {
	t.Parallel()
	for _, preset := range policies.Presets() {
		if preset == "offline" {
			continue // nothing leaves
		}
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			text := "include = [\"" + preset + "\"]\n" + denyEvil
			p := gatewaytest.Policy(t, text)
			warned := policies.Fronting(p).Error()
			rules := map[string]string{"egress.default": "www.example.com"}
			if preset != "public" {
				delete(rules, "egress.default")
			}
			for _, r := range p.Egress.Allow {
				if len(r.Hosts) > 0 && slices.ContainsFunc(r.Ports, func(ports policies.PortRange) bool { return ports.Contains(443) }) {
					rules[r.Name] = strings.Replace(r.Hosts[0].Display(), "*", "x", 1)
				}
			}
			for rule, host := range rules {
				w := gatewaytest.Start(t, text)
				w.Record(host + ". 60 IN A " + site)
				w.ServeHTTPS(site+":443", w.CA.Certificate(host), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Host) }))
				c := frontClient(t, w, false)
				status, body := askFor(t, c, http.MethodGet, "https://"+host+"/", "evil.example.com")
				if fronts := status == http.StatusOK; fronts != strings.Contains(warned, rule) {
					t.Errorf("by %s, %s: %d %s; check warns of %q", rule, host, status, body, warned)
				}
				if status, body := askFor(t, c, http.MethodGet, "https://"+host+"/", host); status != http.StatusOK && !strings.Contains(body, "path_not_allowed") {
					t.Errorf("by %s, %s itself: %d %s", rule, host, status, body)
				}
			}
		})
	}
}
