package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

const (
	frontNames = "www.example.com. 60 IN A " + site + "\nother.example.com. 60 IN A " + site + "\nevil.example.com. 60 IN A " + site
	denyEvil   = "[[egress.deny]]\nname = \"no evil\"\nhosts = [\"evil.example.com\"]\n"
	allowWWW   = "[[egress.allow]]\nname = \"www\"\nhosts = [\"www.example.com\"]\n"
)

// front is a server with many names, and a guest that may open connections to one of them. It says which host it
// was asked for.
func front(t *testing.T, policy string) *gatewaytest.World {
	t.Helper()
	w := gatewaytest.Start(t, policy)
	w.Record(strings.Split(frontNames, "\n")...)
	seen := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, r.Host) })
	cert := w.CA.Certificate("www.example.com", "other.example.com", "evil.example.com", "in.corp.example")
	for _, at := range []string{site + ":443", site + ":8443", "10.0.0.5:443", "10.0.0.5:9443"} {
		w.ServeHTTPS(at, cert, seen)
	}
	for _, name := range []string{"evil.example.com", "www.example.com"} {
		w.Resolve(name, dns.TypeA) // where that is allowed, the address has both names
	}
	return w
}

// frontClient speaks one version of HTTP, and keeps its connections.
func frontClient(t *testing.T, w *gatewaytest.World, h2 bool) *http.Client {
	t.Helper()
	c := w.Client()
	tr, ok := c.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the client has another transport")
	}
	tr.Protocols = new(http.Protocols)
	tr.Protocols.SetHTTP1(!h2)
	tr.Protocols.SetHTTP2(h2)
	return c
}

// askFor sends one request over a connection to url's host that names another host.
func askFor(t *testing.T, c *http.Client, method, url, host string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// Each policy denies a request that its other rules would carry on a connection to another name, and has a twin
// in which nobody looks into that connection.
func TestI7_FrontedRequestsAreRefused(t *testing.T) {
	t.Parallel()
	const public = "[egress]\ndefault = \"public\"\n"
	const all, none, passed = "[tls]\ninspect = \"all\"\n", "[tls]\ninspect = \"none\"\n", "[tls]\nbypass = [\"www.example.com\"]\n"
	const www = "https://www.example.com/"
	const gets = "[[egress.allow]]\nname = \"api\"\nhosts = [\"evil.example.com\"]\n"
	const elsewhere = gets + "ports = [8443]\nprotocol = \"https\"\n"
	const corp = "[hosts]\n\"in.corp.example\" = \"10.0.0.5\"\n"
	for name, tt := range map[string]struct{ policy, twin, url string }{
		"deny by name":            {allowWWW + denyEvil, allowWWW + denyEvil + none, www},
		"wildcard":                {strings.ReplaceAll(allowWWW, "www.ex", "*.ex") + denyEvil, strings.ReplaceAll(allowWWW, "www.ex", "*.ex") + denyEvil + none, www},
		"two names, one address":  {allowWWW + elsewhere + denyEvil + "ports = [443]\n", allowWWW + elsewhere + denyEvil + "ports = [443]\n" + none, www},
		"methods":                 {allowWWW + gets + "methods = [\"GET\"]\n", allowWWW + gets + "methods = [\"GET\"]\n" + passed, www},
		"paths":                   {allowWWW + gets + "paths = [\"/only/**\"]\n", allowWWW + gets + "paths = [\"/only/**\"]\n" + passed, www},
		"deny of methods":         {allowWWW + gets + denyEvil + "methods = [\"PUT\"]\n", allowWWW + gets + denyEvil + "methods = [\"PUT\"]\n" + passed, www},
		"another port":            {allowWWW + "ports = [8443]\nprotocol = \"https\"\n" + denyEvil, allowWWW + "ports = [8443]\nprotocol = \"https\"\n" + denyEvil + none, "https://www.example.com:8443/"},
		"an address rule":         {allowWWW + "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nports = [8443]\nprotocol = \"https\"\n" + denyEvil, allowWWW + "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nports = [8443]\nprotocol = \"https\"\n" + denyEvil + none, "https://www.example.com:8443/"},
		"[hosts]":                 {corp + denyEvil, corp + denyEvil + none, "https://in.corp.example/"},
		"[hosts], another port":   {corp + denyEvil, corp + denyEvil + none, "https://in.corp.example:9443/"},
		"public":                  {public + denyEvil + all, public + denyEvil, www},
		"public, another port":    {public + denyEvil + all, public + denyEvil, "https://www.example.com:8443/"},
		"https alone":             {allowWWW + all, allowWWW, www},
		"tls is opaque":           {allowWWW + denyEvil, allowWWW + "protocol = \"tls\"\nports = [443]\n" + denyEvil, www},
		"reported, and inspected": {"[egress]\nmode = \"report\"\n" + allowWWW + denyEvil, "[egress]\nmode = \"report\"\n" + allowWWW + denyEvil + none, www},
	} {
		for version, h2 := range map[string]bool{"h1": false, "h2": true} {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				own := strings.TrimSuffix(strings.TrimPrefix(tt.url, "https://"), "/")
				guarded := frontClient(t, front(t, tt.policy), h2)
				// The same connection first carries what is allowed, then what is not, then what is allowed.
				for i, host := range []string{own, "evil.example.com", own} {
					status, body := askFor(t, guarded, http.MethodPut, tt.url, host)
					if host == own && status != http.StatusOK {
						t.Errorf("request %d, to the host that is allowed: %d %s", i, status, body)
					}
					if host != own && (status != http.StatusMisdirectedRequest && status != http.StatusForbidden || body == host) {
						t.Errorf("a request for a host that is denied: %d %s", status, body)
					}
				}
				twin := frontClient(t, front(t, tt.twin), h2)
				if status, body := askFor(t, twin, http.MethodPut, tt.url, "evil.example.com"); status != http.StatusOK || body != "evil.example.com" {
					t.Errorf("uninspected, the same request comes back with %d %q: this test shows nothing", status, body)
				}
			})
		}
	}
}

// A rule that comes while nobody looks into a connection ends it.
func TestI7_ReloadsEndUninspectedConnections(t *testing.T) {
	t.Parallel()
	const gets = "[[egress.allow]]\nname = \"api\"\nhosts = [\"evil.example.com\"]\nmethods = [\"GET\"]\n"
	for name, tt := range map[string]struct {
		next string
		ends bool
	}{
		"a deny rule by name":           {allowWWW + denyEvil, true},
		"a deny rule for other ports":   {allowWWW + denyEvil + "ports = [22]\n", true},
		"a rule with methods":           {allowWWW + gets, true},
		"all is inspected":              {allowWWW + "[tls]\ninspect = \"all\"\n", true},
		"the name is bypassed":          {allowWWW + denyEvil + "[tls]\nbypass = [\"www.example.com\"]\n", false},
		"a deny rule by address (twin)": {allowWWW + "[[egress.deny]]\ncidrs = [\"8.8.8.8/32\"]\n", false},
	} {
		for version, h2 := range map[string]bool{"h1": false, "h2": true} {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				w := front(t, allowWWW)
				c := frontClient(t, w, h2)
				tr, _ := c.Transport.(*http.Transport)
				dial, dialled := tr.DialContext, 0
				tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if dialled++; dialled > 1 {
						return nil, errors.New("the connection was not kept")
					}
					return dial(ctx, network, addr)
				}
				if status, body := askFor(t, c, http.MethodPut, "https://www.example.com/", "www.example.com"); status != http.StatusOK {
					t.Fatalf("before the reload: %d %s", status, body)
				}
				if err := w.Gateway.Reload(gatewaytest.Policy(t, tt.next)); err != nil {
					t.Fatal(err)
				}
				status, body := askFor(t, c, http.MethodPut, "https://www.example.com/", "evil.example.com")
				if tt.ends != (status == 0) {
					t.Errorf("on a connection that was open at the reload: %d %q; want it ended: %v", status, body, tt.ends)
				}
			})
		}
	}
}
