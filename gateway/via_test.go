package gateway_test

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/echo"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// corporate is a CONNECT proxy on an address that no rule names. It notes what it was asked for and leads
// it all to one server.
type corporate struct {
	mu     sync.Mutex
	asked  []string
	conns  []net.Conn
	status string
	// answer takes the place of its answer's head; with it, the proxy opens no tunnel if closes is set.
	answer string
	closes bool
}

func (p *corporate) targets() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *corporate) hangUp() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// serve starts the proxy at 10.9.9.9:3128; servers resolves what it is asked for.
func (p *corporate) serve(t *testing.T, w *gatewaytest.World, servers map[string]string) {
	// Before the world ends, which waits for its servers: kept connections are closed last.
	defer t.Cleanup(p.hangUp)
	w.Serve("10.9.9.9:3128", func(c net.Conn) {
		r := bufio.NewReader(c)
		req, err := http.ReadRequest(r)
		if err != nil || req.Method != http.MethodConnect {
			return
		}
		p.mu.Lock()
		p.asked, p.conns = append(p.asked, req.RequestURI), append(p.conns, c)
		p.mu.Unlock()
		if p.status != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 "+p.status+"\r\nContent-Length: 0\r\n\r\n")
			return
		}
		if p.closes {
			_, _ = io.WriteString(c, p.answer)
			return
		}
		up, err := w.DialContext(req.Context(), "tcp", servers[req.RequestURI])
		if err != nil {
			return
		}
		defer up.Close()
		_, _ = io.WriteString(c, cmp.Or(p.answer, "HTTP/1.1 200 OK\r\nX-Proxy: corporate\r\n\r\n"))
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(up, r); _ = up.(*net.TCPConn).CloseWrite() })
		both.Go(func() { _, _ = io.Copy(c, up); _ = c.(*net.TCPConn).CloseWrite() })
		both.Wait()
	})
}

const viaPolicy = `
[[egress.allow]]
hosts = ["api.example.com"]
protocol = "https"
methods = ["GET"]
[[egress.allow]]
hosts = ["relayed.example.com"]
protocol = "tls"
ports = [443]
[[egress.allow]]
cidrs = ["` + other + `/32"]
protocol = "tcp"
ports = [443]
[[egress.allow]]
hosts = ["plain.example.com"]
protocol = "http"
[tls]
via = "http://10.9.9.9:3128"
`

func TestViaCarriesTLS(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, viaPolicy)
	w.Record("api.example.com. 60 IN A "+site, "relayed.example.com. 60 IN A "+site, "plain.example.com. 60 IN A "+site)
	// Behind the proxy the servers are elsewhere than where our own resolver says.
	const far, near = "93.184.215.50:443", other + ":443"
	w.ServeHTTPS(far, w.CA.Certificate("api.example.com", "relayed.example.com", "chosen.example.com"), echo.Handler())
	w.ServeHTTPS(near, w.CA.Certificate("chosen.example.com"), echo.Handler())
	w.ServeHTTP(site+":80", echo.Handler())
	p := &corporate{}
	p.serve(t, w, map[string]string{"api.example.com:443": far, "relayed.example.com:443": far, other + ":443": near, "chosen.example.com:443": far})
	for _, url := range []string{"https://api.example.com/", "https://relayed.example.com/", "http://plain.example.com/"} {
		if status, body := get(t, w.Client(), url); status != http.StatusOK {
			t.Errorf("%s: %d %s", url, status, body)
		}
	}
	// A flow that only its address allows: the guest may write any name into its hello.
	c := w.Client()
	tr, _ := c.Transport.(*http.Transport)
	tr.TLSClientConfig.ServerName = "chosen.example.com"
	if status, body := get(t, c, "https://"+other+"/"); status != http.StatusOK {
		t.Errorf("by address: %d %s", status, body)
	}
	if got, want := p.targets(), []string{"api.example.com:443", "relayed.example.com:443", other + ":443"}; !slices.Equal(got, want) {
		t.Errorf("the proxy was asked for %v, want %v", got, want)
	}
	for _, d := range w.Dialled() {
		if addr := strings.TrimPrefix(d, "tcp "); addr == site+":443" {
			t.Errorf("dialled %s around the proxy", addr)
		}
	}
}

// TestGuestResetReachesVia: what is said through the tunnel is metered, and its end is passed on all the same.
func TestGuestResetReachesVia(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, viaPolicy)
	w.Record("relayed.example.com. 60 IN A " + site)
	said, ended := make(chan struct{}), make(chan error, 1)
	w.Serve("10.9.9.9:3128", func(c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := http.ReadRequest(r); err != nil {
			ended <- err
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		_, _ = r.ReadByte() // of the client's hello
		close(said)
		_, err := io.Copy(io.Discard, r)
		ended <- err
	})
	c, err := w.Dial(w.Lookup("relayed.example.com"), 443)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		_ = tls.Client(c, &tls.Config{ServerName: "relayed.example.com", MinVersion: tls.VersionTLS12}).Handshake()
	}() // nobody answers it
	<-said
	for _, ep := range w.Guest.Stack.RegisteredEndpoints() {
		ep.Abort()
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the proxy read %v, want a reset", err)
	}
}

func TestI5_ViaKeepsItsNetworkShut(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, viaPolicy)
	p := &corporate{}
	p.serve(t, w, nil)
	for _, dst := range []string{"10.9.9.9:3128", "10.9.9.9:443", "10.0.0.1:443", "127.0.0.1:443", "169.254.169.254:443"} {
		a := netip.MustParseAddrPort(dst)
		if c, err := w.Dial(a.Addr(), a.Port()); err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", dst)
		}
		if resp, body := ask(t, w, "CONNECT "+dst+" HTTP/1.1\r\n\r\n"); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d %s", dst, resp.StatusCode, body)
		}
	}
	if got := p.targets(); len(got) != 0 || len(w.Dialled()) != 0 {
		t.Errorf("asked for %v, dialled %v", got, w.Dialled())
	}
}

func TestRefusalsByViaAreNamed(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, viaPolicy)
	w.Record("api.example.com. 60 IN A " + site)
	(&corporate{status: "403 Forbidden"}).serve(t, w, nil)
	if status, body := get(t, w.Client(), "https://api.example.com/"); status != http.StatusBadGateway || !strings.Contains(body, `"cause":"via"`) {
		t.Errorf("%d %s, want 502 with the cause", status, body)
	}
	for _, d := range w.Dialled() {
		if d != "tcp 10.9.9.9:3128" {
			t.Errorf("dialled %s around the proxy", d)
		}
	}
}

// Each answer to CONNECT either opens a tunnel or is refused by what the audit log says; none is asked for again.
func TestViaAnswersOpenOrAreNamed(t *testing.T) {
	t.Parallel()
	const end = "\r\n\r\n"
	for name, tt := range map[string]struct{ answer, says string }{
		"200":                   {"HTTP/1.1 200 OK" + end, ""},
		"200 of HTTP/1.0":       {"HTTP/1.0 200 Connection established" + end, ""},
		"200 without a phrase":  {"HTTP/1.1 200" + end, ""},
		"200 with a length":     {"HTTP/1.1 200 OK\r\nContent-Length: 5" + end, ""},
		"200 with chunks":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked" + end, ""},
		"200 with 15 KiB":       {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 15<<10) + end, ""},
		"407 with a body":       {"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 4" + end + "auth", "status 407"},
		"407 cut short":         {"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 400" + end + "auth", "status 407"},
		"302":                   {"HTTP/1.1 302 Found\r\nLocation: https://evil.example.com/\r\nContent-Length: 0" + end, "status 302"},
		"204":                   {"HTTP/1.1 204 No Content" + end, "status 204"},
		"100, then 200":         {"HTTP/1.1 100 Continue" + end + "HTTP/1.1 200 OK" + end, "status 100"},
		"101":                   {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x" + end, "status 101"},
		"garbage":               {"\x00\xff garbage" + end, "malformed HTTP"},
		"SSH":                   {"SSH-2.0-server" + end, "malformed HTTP"},
		"a field without colon": {"HTTP/1.1 200 OK\r\ngarbage" + end, "malformed MIME header"},
		"half a head":           {"HTTP/1.1 200 OK\r\nX-", "EOF"},
		"a head without end":    {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 64<<10), "has no end"},
		"nothing":               {"", "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, viaPolicy)
			w.Record("api.example.com. 60 IN A "+site, "relayed.example.com. 60 IN A "+site)
			const far = "93.184.215.50:443"
			w.ServeHTTPS(far, w.CA.Certificate("api.example.com", "relayed.example.com"), echo.Handler())
			p := &corporate{answer: tt.answer, closes: tt.says != ""}
			p.serve(t, w, map[string]string{"api.example.com:443": far, "relayed.example.com:443": far})
			resp, err := w.Client().Get("https://relayed.example.com/")
			if err == nil {
				_ = resp.Body.Close()
			}
			if (err == nil) != (tt.says == "") {
				t.Errorf("relayed: %v", err)
			}
			status, body := get(t, w.Client(), "https://api.example.com/")
			if opens := tt.says == ""; opens != (status == http.StatusOK) || !opens && (status != http.StatusBadGateway || !strings.Contains(body, `"cause":"via"`)) {
				t.Errorf("inspected: %d %s", status, body)
			}
			if got, want := p.targets(), []string{"relayed.example.com:443", "api.example.com:443"}; !slices.Equal(got, want) {
				t.Errorf("the proxy was asked for %v, want %v", got, want)
			}
			if tt.says == "" {
				return
			}
			e := w.Audit.Wait(t, audit.FlowClose, 1)[0]
			if !strings.Contains(e.Message, "[tls] via") || !strings.Contains(e.Message, tt.says) {
				t.Errorf("the audit log doesn't say %q: %+v", tt.says, e)
			}
		})
	}
}

// A relayed tunnel keeps the proxy that it was opened by; what is opened after a reload takes the new way.
func TestViaChangesWithReloads(t *testing.T) {
	t.Parallel()
	const by = "via = \"http://10.9.9.9:3128\"\n"
	for name, tt := range map[string]struct {
		via  string
		asks bool
	}{
		"removed":     {"", false},
		"changed":     {"via = \"http://10.9.9.8:3128\"\n", false},
		"kept (twin)": {by, true},
	} {
		for _, host := range []string{"api.example.com", "relayed.example.com"} {
			t.Run(name+"/"+host, func(t *testing.T) {
				t.Parallel()
				w := gatewaytest.Start(t, viaPolicy)
				w.Record("api.example.com. 60 IN A "+site, "relayed.example.com. 60 IN A "+site)
				cert := w.CA.Certificate("api.example.com", "relayed.example.com")
				const far = "93.184.215.50:443"
				w.ServeHTTPS(far, cert, echo.Handler())
				w.ServeHTTPS(site+":443", cert, echo.Handler())
				p := &corporate{}
				p.serve(t, w, map[string]string{host + ":443": far})
				kept := w.Client()
				if status, body := get(t, kept, "https://"+host+"/"); status != http.StatusOK {
					t.Fatalf("%d %s", status, body)
				}
				if err := w.Gateway.Reload(gatewaytest.Policy(t, strings.Replace(viaPolicy, by, tt.via, 1))); err != nil {
					t.Fatal(err)
				}
				if status, body := get(t, kept, "https://"+host+"/"); name != "changed" && status != http.StatusOK {
					t.Errorf("a kept connection: %d %s", status, body)
				}
				c := w.Client()
				c.Timeout = 60 * time.Second
				resp, err := c.Get("https://" + host + "/")
				if err == nil {
					_ = resp.Body.Close()
				}
				if ok := err == nil && resp.StatusCode == http.StatusOK; ok != (name != "changed") {
					t.Errorf("a new connection: %v", err)
				}
				if n := len(p.targets()); (n > 1) != tt.asks {
					t.Errorf("the old proxy was asked %d times", n)
				}
			})
		}
	}
}
