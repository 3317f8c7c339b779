package gateway_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

const (
	site   = "93.184.215.14"
	other  = "93.184.215.99"
	apiTLS = `
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "tls"
ports = [443]
`
)

var siteAddr, otherAddr = netip.MustParseAddr(site), netip.MustParseAddr(other)

// serveTLS answers every handshake and says which server it is.
func serveTLS(w *gatewaytest.World, addr, body string, names ...string) {
	w.ServeHTTPS(addr, w.CA.Certificate(names...), http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, body)
	}))
}

func TestI1_UnallowedFlowsAreResetAndAudited(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, apiTLS)
	for i, dst := range []string{
		"10.0.0.1:443", "172.16.0.1:443", "192.168.1.1:80", "169.254.169.254:80", "100.64.0.1:443",
		"198.18.0.1:443", "93.184.215.14:443", "93.184.215.14:22", "168.63.129.16:80",
		"[fd00::1]:443", "[::ffff:10.0.0.1]:443", "[64:ff9b::a00:1]:443", "[2002:a00:1::]:443", "[2606:2800:21f::1]:443",
	} {
		addr := netip.MustParseAddrPort(dst)
		c, err := w.Dial(addr.Addr(), addr.Port())
		if err == nil {
			_ = c.Close()
			t.Errorf("%s: connected", dst)
			continue
		}
		if !strings.Contains(err.Error(), "refused") {
			t.Fatalf("%s: %v, want connection refused", dst, err)
		}
		got := w.Audit.Wait(t, audit.FlowOpen, i+1)[i]
		if got.Action != "deny" || got.Reason == "" || got.Message == "" {
			t.Errorf("%s: audit line %+v, want a denial with its reason", dst, got)
		}
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v, want nothing", d)
	}
}

func TestI6_NamesAreDialledAsPinned(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, apiTLS)
	w.Record("api.example.com. 60 IN A " + site)
	serveTLS(w, site+":443", "the site", "api.example.com")
	serveTLS(w, other+":443", "another", "api.example.com")
	resp, err := w.Client().Get("https://api.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(body) != "the site" {
		t.Errorf("got %q", body)
	}
	// The right name at an address that the resolver did not give out for it.
	if c, err := w.Dial(otherAddr, 443); err == nil {
		_ = c.Close()
		t.Error("an address that was not pinned could be connected to")
	}
	if d := w.Dialled(); !slices.Equal(d, []string{"tcp " + site + ":443"}) {
		t.Errorf("dialled %v", d)
	}
}

// hello dials the site and sends a ClientHello for name; the error is the client's.
func hello(t *testing.T, w *gatewaytest.World, name string) error {
	t.Helper()
	c, err := w.Dial(siteAddr, 443)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return tls.Client(c, &tls.Config{ServerName: name, RootCAs: w.CA.Pool(), InsecureSkipVerify: name == ""}).Handshake()
}

func TestI7_SNIMustBePinned(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, apiTLS+"\n[[egress.allow]]\nname = \"b\"\nhosts = [\"b.example.com\"]\nprotocol = \"tls\"\nports = [443]\n")
	w.Record("api.example.com. 60 IN A "+site, "b.example.com. 60 IN A "+other)
	serveTLS(w, site+":443", "", "api.example.com", "b.example.com", "evil.example.com")
	w.Lookup("api.example.com")
	w.Lookup("b.example.com")
	for name, want := range map[string]string{
		"evil.example.com": "access denied", // no rule
		"b.example.com":    "access denied", // a rule, but pinned to another address
		"":                 "access denied", // no SNI
	} {
		if err := hello(t, w, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hello for %q: %v, want %q", name, err, want)
		}
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v before a hello was admitted", d)
	}
	if err := hello(t, w, "API.example.com"); err != nil {
		t.Errorf("the pinned name: %v", err)
	}
}

func TestRefusedConnectionsLookRefused(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"tcp\"\nports = [\"1-65535\"]\n")
	_, err := w.Dial(siteAddr, 2222)
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v, want connection refused", err)
	}
	if d := w.Dialled(); !slices.Equal(d, []string{"tcp " + site + ":2222"}) {
		t.Errorf("dialled %v", d)
	}
}

func TestServerFirstProtocolsConnectAtOnce(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"ssh.example.com\"]\nprotocol = \"tcp\"\nports = [22]\n")
	w.Record("ssh.example.com. 60 IN A " + site)
	w.Serve(site+":22", func(c net.Conn) {
		_, _ = io.WriteString(c, "SSH-2.0-test\r\n")
		b, _ := io.ReadAll(c) // until the guest's half-close
		_, _ = c.Write(b)
	})
	c, err := w.Dial(w.Lookup("ssh.example.com"), 22)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	banner := make([]byte, 14)
	if _, err := io.ReadFull(c, banner); err != nil || string(banner) != "SSH-2.0-test\r\n" {
		t.Fatalf("banner %q, %v", banner, err)
	}
	if _, err := c.Write([]byte("back")); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); err != nil || string(b) != "back" {
		t.Errorf("after the half-close: %q, %v", b, err)
	}
	e := w.Audit.Wait(t, audit.FlowClose, 1)[0]
	if e.BytesUp != 4 || e.BytesDown != 18 || e.Duration <= 0 {
		t.Errorf("close line %+v, want 4 bytes up and 18 down", e)
	}
}

func TestUpstreamResetReachesTheGuest(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"tcp\"\nports = [9]\n")
	w.Serve(site+":9", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.(*net.TCPConn).SetLinger(0)
	})
	c, err := w.Dial(siteAddr, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	_, _ = c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "reset") && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want a reset", err)
	}
}

func TestGuestResetReachesTheServer(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"tcp\"\nports = [9]\n")
	got := make(chan error, 1)
	w.Serve(site+":9", func(c net.Conn) {
		_, _ = c.Write([]byte("x"))
		_, err := io.ReadAll(c)
		got <- err
	})
	c, err := w.Dial(siteAddr, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for _, ep := range w.Guest.Stack.RegisteredEndpoints() {
		ep.Abort()
	}
	if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server read %v, want a reset", err)
	}
}

func TestPlainHTTPIsJudgedByHost(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"http\"\nports = [80]\n")
	w.Record("web.example.com. 60 IN A " + site)
	var hosts []string
	w.ServeHTTP(site+":80", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		hosts = append(hosts, r.Host)
		_, _ = io.WriteString(rw, "ok")
	}))
	client := w.Client()
	get := func(host string) int {
		req, _ := http.NewRequest(http.MethodGet, "http://web.example.com/", nil)
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if code := get(""); code != http.StatusOK {
		t.Errorf("allowed host: status %d", code)
	}
	if code := get("evil.example.com"); code != http.StatusForbidden && code != http.StatusMisdirectedRequest {
		t.Errorf("another Host on the kept connection: status %d", code)
	}
	if !slices.Equal(hosts, []string{"web.example.com"}) {
		t.Errorf("the server saw %v", hosts)
	}
}
