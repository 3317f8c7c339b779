package gateway_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress/learn"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/echo"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
)

func TestUDPIsJudgedAndRelayed(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"udp\"\nports = [123]\n")
	w.ServeUDP(site+":123", func(b []byte) []byte { return append([]byte("re: "), b...) })
	c, err := w.Guest.DialUDP(netip.MustParseAddrPort(site + ":123"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	_, _ = c.Write([]byte("time?"))
	buf := make([]byte, 64)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "re: time?" {
		t.Errorf("got %q, %v", buf[:n], err)
	}
	// A denied one fails at once, by ICMP, and not by a timeout.
	d, err := w.Guest.DialUDP(netip.MustParseAddrPort(site + ":443"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	_, _ = d.Write([]byte("quic"))
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	if _, err := w.Guest.WaitFrame(ctx, prohibited); err != nil {
		t.Errorf("denied datagram: no ICMP administratively prohibited: %v", err)
	}
}

// prohibited finds Ethernet, IPv4 without options, ICMP type 3, code 13.
func prohibited(f []byte) bool {
	return len(f) > 36 && f[12] == 8 && f[13] == 0 && f[23] == 1 && f[34] == 3 && f[35] == 13
}

// A ping that a rule refuses, or that an allowed one can't be sent for, is answered at once.
func TestPingsThatDontLeaveAreAnswered(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"icmp\"\n"
	for name, tt := range map[string]struct {
		policy string
		left   int
	}{
		"no rule":       {"", 0},
		"no budget":     {rule + "[limits]\negress_bytes = \"64\"\n", 0},
		"a rule (twin)": {rule, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, tt.policy)
			w.AnswerPings(siteAddr)
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			over := make(chan error, 1)
			go func() { over <- w.Guest.Ping(ctx, siteAddr, []byte("hello")) }()
			if tt.left == 0 {
				if _, err := w.Guest.WaitFrame(ctx, prohibited); err != nil {
					t.Errorf("no ICMP administratively prohibited: %v", err)
				}
				cancel()
			}
			if err := <-over; (err == nil) != (tt.left > 0) {
				t.Errorf("a ping: %v", err)
			}
			cancel()
			if n := len(w.Dialled()); n != tt.left {
				t.Errorf("%d pings left, want %d", n, tt.left)
			}
		})
	}
}

func TestI5_ARebindingNameGetsNowhere(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"*.attacker.example\"]\nprotocol = \"tcp\"\nports = [80]\n")
	w.Record("a.attacker.example. 0 IN A 127.0.0.1", "a.attacker.example. 0 IN A 10.0.0.1")
	m := w.Resolve("a.attacker.example", dns.TypeA)
	if m.Rcode != dns.RcodeRefused || len(m.Answer) != 0 {
		t.Errorf("got %v, want REFUSED and no answer", m)
	}
	if got := w.Audit.Wait(t, audit.DNSRebinding, 1); len(got[0].DNS.Removed) != 2 {
		t.Errorf("audit line %+v, want both addresses as removed", got[0])
	}
	for _, a := range []string{"127.0.0.1", "10.0.0.1"} {
		if c, err := w.Dial(netip.MustParseAddr(a), 80); err == nil {
			_ = c.Close()
			t.Errorf("%s could be connected to", a)
		}
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
}

// Go's resolver reports a refused name as one that isn't there, as musl's and glibc's do for this response code.
func TestRefusedNamesDontExist(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\nhosts = [\"*.example.com\"]\n[limits]\negress_bytes = \"50\"\n")
	resolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return w.Dial(w.Gateway.Link().Gateway4, 53)
	}}
	for name, none := range map[string]bool{
		"evil.example.":             true,
		"localhost.localdomain.":    true,
		"metadata.google.internal.": true,
		"www.example.com.":          false, // the budget is too small for the question (twin)
	} {
		_, err := resolver.LookupHost(t.Context(), name)
		var why *net.DNSError
		if !errors.As(err, &why) || why.IsNotFound != none {
			t.Errorf("%s: %v; want no such host: %v", name, err, none)
		}
	}
}

func TestI6_UnallowedNamesAreNotAskedUpstream(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, apiTLS)
	w.Record("evil.example. 60 IN A " + site)
	for _, name := range []string{"evil.example", "data.api.example.com", "localhost", "metadata.google.internal", "printer"} {
		if m := w.Resolve(name, dns.TypeA); m.Rcode != dns.RcodeNameError {
			t.Errorf("%s: %s, want NXDOMAIN", name, dns.RcodeToString[m.Rcode])
		}
	}
	if a := w.Asked(); len(a) != 0 {
		t.Errorf("asked outside for %v", a)
	}
}

const withSecret = `
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "https"
[[egress.allow]]
name = "other"
hosts = ["other.example.com"]
protocol = "https"
[tls]
inspect = "all"
[secrets.TOKEN]
from = "command:printf real-value-of-the-token-0123456789"
hosts = ["api.example.com"]
in = ["header:Authorization"]
placeholder = "tok_{24}"
`

func TestI9_SecretsReachTheirHostOnly(t *testing.T) {
	t.Parallel()
	const value = "real-value-of-the-token-0123456789"
	w := gatewaytest.Start(t, withSecret)
	w.Record("api.example.com. 60 IN A "+site, "other.example.com. 60 IN A "+other)
	w.ServeHTTPS(site+":443", w.CA.Certificate("api.example.com"), echo.Handler())
	var leaked string
	w.ServeHTTPS(other+":443", w.CA.Certificate("other.example.com"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leaked = r.Header.Get("Authorization")
	}))
	client := w.Client()
	placeholder := w.Gateway.Placeholders()["TOKEN"]
	ask := func(host string) *http.Response {
		req, _ := http.NewRequest(http.MethodGet, "https://"+host+"/", nil)
		req.Header.Set("Authorization", "Bearer "+placeholder)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := ask("api.example.com")
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	var got echo.Reply
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	sum := sha256.Sum256([]byte("Bearer " + value))
	if got.HeaderSHA256["Authorization"] != hex.EncodeToString(sum[:]) {
		t.Errorf("the server did not receive the real value: %+v", got)
	}
	if strings.Contains(string(body), value) || !strings.Contains(string(body), placeholder) {
		t.Errorf("the guest got %s", body)
	}
	resp = ask("other.example.com")
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden || leaked != "" {
		t.Errorf("another host: status %d, it received %q", resp.StatusCode, leaked)
	}
	for _, e := range w.Audit.All() {
		if b, _ := json.Marshal(e); strings.Contains(string(b), value) || strings.Contains(string(b), placeholder) {
			t.Errorf("the audit holds the value or its placeholder: %s", b)
		}
	}
}

func TestHostsLeadToTheirTarget(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "the operator's")
			_ = c.Close()
		}
	}()
	// The host's own dialer, with its fuse: the target is on loopback.
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, "[hosts]\n\"registry.internal\" = \""+l.Addr().String()+"\"\n"),
		func(c *gateway.Config) { c.Dialer = nil })
	c, err := w.Dial(w.Lookup("registry.internal"), 5000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if b, _ := io.ReadAll(c); string(b) != "the operator's" {
		t.Errorf("got %q", b)
	}
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	if c, err := w.Dial(netip.MustParseAddr("127.0.0.1"), port); err == nil {
		_ = c.Close()
		t.Error("the target's own address could be connected to")
	}
	if c, err := w.Dial(netip.MustParseAddr("198.18.77.77"), 5000); err == nil {
		_ = c.Close()
		t.Error("an address of the range that was not given out could be connected to")
	}
}

func TestReloadsEndOnlyDeniedFlows(t *testing.T) {
	t.Parallel()
	rule := func(port string) string {
		return "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"tcp\"\nports = [" + port + "]\n"
	}
	w := gatewaytest.Start(t, rule("1000, 2000"))
	hold := func(c net.Conn) { _, _ = io.Copy(c, c) }
	w.Serve(site+":1000", hold)
	w.Serve(site+":2000", hold)
	stays, err := w.Dial(siteAddr, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer stays.Close()
	goes, err := w.Dial(siteAddr, 2000)
	if err != nil {
		t.Fatal(err)
	}
	defer goes.Close()
	if err := w.Gateway.Reload(gatewaytest.Policy(t, rule("1000"))); err != nil {
		t.Fatal(err)
	}
	_ = goes.SetDeadline(time.Now().Add(60 * time.Second))
	if _, err := goes.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the flow that is no longer allowed: %v, want a reset", err)
	}
	_ = stays.SetDeadline(time.Now().Add(60 * time.Second))
	_, _ = stays.Write([]byte("x"))
	if _, err := stays.Read(make([]byte, 1)); err != nil {
		t.Errorf("the flow that is still allowed: %v", err)
	}
}

// watched starts a world whose policy is a file, and returns how to exchange the file.
func watched(t *testing.T, inForce, onDisk string) (*gatewaytest.World, func(text string)) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.toml")
	exchange := func(text string) {
		t.Helper()
		fresh := filepath.Join(dir, "fresh")
		if err := os.WriteFile(fresh, []byte("version = 1\n[dns]\nservers = [\"udp://"+gatewaytest.Resolver+"\"]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, path); err != nil {
			t.Fatal(err)
		}
	}
	exchange(onDisk)
	p := gatewaytest.Policy(t, inForce)
	w := gatewaytest.StartWith(t, p, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Gateway.WatchPolicy(ctx, path, p, nil) }()
	t.Cleanup(func() { cancel(); <-done })
	return w, exchange
}

func TestI12_BrokenPoliciesLeaveTheOldOne(t *testing.T) {
	t.Parallel()
	w, exchange := watched(t, apiTLS, apiTLS)
	exchange("[egress]\ndefault = \"sure\"\n")
	got := w.Audit.Wait(t, audit.PolicyReload, 1)[0]
	if got.Action != "deny" || !strings.Contains(got.Message, "policy.toml:5") {
		t.Errorf("audit line %+v, want a refusal with the place", got)
	}
	w.Record("api.example.com. 60 IN A " + site)
	if w.Lookup("api.example.com") != siteAddr {
		t.Error("the old policy is no longer in force")
	}
}

func TestChangesBeforeTheWatchAreTaken(t *testing.T) {
	t.Parallel()
	w, _ := watched(t, apiTLS, "")
	if got := w.Audit.Wait(t, audit.PolicyReload, 1)[0]; got.Action != "allow" {
		t.Fatalf("audit line %+v, want the stricter file in force", got)
	}
	if m := w.Resolve("api.example.com", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("the name that only the old policy allows: %v", m)
	}
}

func TestIncludedFilesAreWatched(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	main, part := filepath.Join(dir, "policy.toml"), filepath.Join(dir, "part.toml")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(part, apiTLS)
	if err := os.WriteFile(main, []byte("version = 1\ninclude = [\"part.toml\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policies.Load(main)
	if err != nil {
		t.Fatal(err)
	}
	w := gatewaytest.StartWith(t, p, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Gateway.WatchPolicy(ctx, main, p, nil) }()
	t.Cleanup(func() { cancel(); <-done })
	write(part, strings.ReplaceAll(apiTLS, "api.example.com", "other.example.com"))
	if got := w.Audit.Wait(t, audit.PolicyReload, 1)[0]; got.Action != "allow" {
		t.Errorf("audit line %+v, want the changed include in force", got)
	}
}

func TestI11_ReloadedEgressBytesBindOpenFlows(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"tcp\"\nports = [9]\n"
	w := gatewaytest.Start(t, rule)
	got := make(chan int64, 1)
	w.Serve(site+":9", func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})
	c, err := w.Dial(siteAddr, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	if err := w.Gateway.Reload(gatewaytest.Policy(t, rule+"[limits]\negress_bytes = \"10K\"\n")); err != nil {
		t.Fatal(err)
	}
	for range 64 {
		if _, err = c.Write(make([]byte, 16<<10)); err != nil {
			break
		}
	}
	_ = c.Close() // or the server waits for the rest
	if n := <-got; n > 10<<10 {
		t.Errorf("%d bytes left an open flow, the new budget is 10240", n)
	}
}

// TestI11_EgressBytesOfEarlierRunsCount: a guest that crashes gets none of them back.
func TestI11_EgressBytesOfEarlierRunsCount(t *testing.T) {
	t.Parallel()
	for used, open := range map[int64]bool{0: true, 10 << 10: false} {
		w := gatewaytest.StartWith(t, gatewaytest.Policy(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"tcp\"\nports = [9]\n[limits]\negress_bytes = \"10K\"\n"), func(c *gateway.Config) { c.EgressUsed = used })
		w.Serve(site+":9", func(c net.Conn) { _, _ = io.Copy(c, c) })
		c, err := w.Dial(siteAddr, 9)
		if (err == nil) != open || w.Gateway.Stats().EgressUsed < used {
			t.Errorf("%d used: %v, %d used then", used, err, w.Gateway.Stats().EgressUsed)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}

func TestI11_ReloadedLimitsBindNextFlows(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"tcp\"\nports = [9]\n"
	limits := func(n int) string { return fmt.Sprintf("%s[limits]\ntcp_connections = %d\n", rule, n) }
	w := gatewaytest.Start(t, limits(2))
	w.Serve(site+":9", func(c net.Conn) { _, _ = io.Copy(c, c) })
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	dial := func(want bool) {
		t.Helper()
		c, err := w.Dial(siteAddr, 9)
		if err == nil {
			open = append(open, c)
		}
		if (err == nil) != want {
			t.Fatalf("connection %d: %v", len(open), err)
		}
	}
	reload := func(text string) {
		t.Helper()
		if err := w.Gateway.Reload(gatewaytest.Policy(t, text)); err != nil {
			t.Fatal(err)
		}
	}
	dial(true)
	dial(true)
	dial(false)
	reload(limits(3))
	dial(true)
	dial(false)
	reload(limits(1))
	dial(false)
	for i, c := range open { // those above the new bound go on
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Errorf("connection %d after the bound was lowered: %v", i, err)
		}
	}
	// 1 MiB at 64 KiB a second takes far longer than the test lives; a rate that goes lets it through.
	reload(rule + "[limits]\negress_rate = \"64K/s\"\n")
	const size = 1 << 20
	back := make(chan error, 1)
	go func() { _, _ = open[0].Write(make([]byte, size)) }()
	go func() {
		_, err := io.CopyN(io.Discard, open[0], size)
		back <- err
	}()
	select {
	case err := <-back:
		t.Fatalf("1 MiB went there and back at once under a rate of 64 KiB a second: %v", err)
	case <-time.After(time.Second):
	}
	reload(rule)
	if err := <-back; err != nil {
		t.Errorf("without a rate: %v", err)
	}
}

func TestI11_EgressBytesEndFlows(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[[egress.allow]]\ncidrs = [\""+site+"/32\"]\nprotocol = \"tcp\"\nports = [9]\n[limits]\negress_bytes = \"64K\"\n")
	got := make(chan int64, 4)
	w.Serve(site+":9", func(c net.Conn) {
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})
	c, err := w.Dial(siteAddr, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	for range 64 {
		if _, err = c.Write(make([]byte, 16<<10)); err != nil {
			break
		}
	}
	if n := <-got; n > 64<<10 {
		t.Errorf("%d bytes left, the budget is 65536", n)
	}
	if c, err := w.Dial(siteAddr, 9); err == nil {
		_ = c.Close()
		t.Error("a new flow was let out with the budget used up")
	}
}

func TestReportModeLetsThroughAndAudits(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "[egress]\nmode = \"report\"\n")
	w.Serve(site+":9", func(c net.Conn) { _, _ = io.WriteString(c, "hi") })
	c, err := w.Dial(siteAddr, 9)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := w.Audit.Wait(t, audit.FlowOpen, 1)[0]; !got.WouldDeny || got.Reason == "" {
		t.Errorf("audit line %+v, want would_deny with the reason", got)
	}
	if c, err := w.Dial(netip.MustParseAddr("10.0.0.1"), 80); err == nil {
		_ = c.Close()
		t.Error("report mode opened a special range")
	}
}

func TestLearningSkipsMappedAndReserved(t *testing.T) {
	t.Parallel()
	c := learn.New()
	p := gatewaytest.Policy(t, "[hosts]\n\"echo.msb.internal\" = \"builtin:echo\"\n[[egress.allow]]\nhosts = [\"echo.msb.internal\"]\nprotocol = \"https\"\n")
	w := gatewaytest.StartWith(t, p, func(cfg *gateway.Config) { cfg.Audit = c })
	resp, err := w.Client().Get("https://echo.msb.internal/")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if conn, err := w.Dial(netip.MustParseAddr("10.0.0.1"), 5432); err == nil {
		_ = conn.Close()
		t.Error("10.0.0.1 could be connected to")
	}
	if got := string(c.Policy(p)); strings.Contains(got, "\nprivate = true") || !strings.Contains(got, "echo.msb.internal") {
		t.Errorf("learned:\n%s", got)
	}
}

func TestFloorsBindLaterPolicies(t *testing.T) {
	t.Parallel()
	rule := func(port string) string {
		return "[[egress.allow]]\ncidrs = [\"" + site + "/32\"]\nprotocol = \"tcp\"\nports = [" + port + "]\n"
	}
	floor := gatewaytest.Policy(t, rule("1000"))
	w := gatewaytest.StartWith(t, gatewaytest.Policy(t, rule("1000, 2000")), func(c *gateway.Config) { c.Floor = floor })
	w.Serve(site+":1000", func(net.Conn) {})
	w.Serve(site+":2000", func(net.Conn) {})
	check := func() {
		t.Helper()
		c, err := w.Dial(siteAddr, 1000)
		if err != nil {
			t.Fatalf("what both allow: %v", err)
		}
		_ = c.Close()
		if c, err := w.Dial(siteAddr, 2000); err == nil {
			_ = c.Close()
			t.Error("what the floor shuts could be connected to")
		}
	}
	check()
	if err := w.Gateway.Reload(gatewaytest.Policy(t, "[egress]\ndefault = \"public\"\n")); err != nil {
		t.Fatal(err)
	}
	check()
}
