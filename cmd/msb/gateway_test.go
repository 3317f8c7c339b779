package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/gateway/echo"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

const echoPolicy = `version = 1
[hosts]
"echo.msb.internal" = "builtin:echo"
[[egress.allow]]
name = "echo"
hosts = ["echo.msb.internal"]
protocol = "https"
[secrets.TOKEN]
from = "env:GATEWAY_TEST_TOKEN"
hosts = ["echo.msb.internal"]
in = ["header:Authorization"]
`

// startGateway runs `msb gateway` and returns its ready line.
func startGateway(t *testing.T, args ...string) (*exec.Cmd, readyLine) {
	t.Helper()
	return startGatewayIn(t, nil, args...)
}

// startGatewayIn is startGateway with extra environment.
func startGatewayIn(t *testing.T, env []string, args ...string) (*exec.Cmd, readyLine) {
	t.Helper()
	cmd := command(t, append(env, "GATEWAY_TEST_TOKEN=a-real-value-0123456789"), append([]string{"gateway", "--trust"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("no ready line: %v", err)
	}
	var ready readyLine
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return cmd, ready
}

// plug puts a second-stack guest on the gateway's socket.
func plug(t *testing.T, ready readyLine) *netstacktest.Guest {
	t.Helper()
	conn, err := net.Dial("unix", strings.TrimPrefix(ready.Listen, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	gw, err := net.ParseMAC(ready.GatewayMAC)
	if err != nil {
		t.Fatal(err)
	}
	return netstacktest.NewGuest(t, conn, netstack.Config{
		GatewayMAC: gw, GuestMAC: netstacktest.MAC, MTU: ready.MTU,
		Guest4: netip.MustParseAddr(ready.GuestIPv4), Gateway4: netip.MustParseAddr(ready.GatewayIPv4), Prefix4: ready.PrefixIPv4,
		Guest6: netip.MustParseAddr(ready.GuestIPv6), Gateway6: netip.MustParseAddr(ready.GatewayIPv6), Prefix6: ready.PrefixIPv6,
	})
}

// lookup asks the gateway's resolver for an address.
func lookup(t *testing.T, g *netstacktest.Guest, ready readyLine, name string) (netip.Addr, int) {
	t.Helper()
	c, err := g.DialUDP(netip.MustParseAddrPort(ready.GatewayIPv4 + ":53"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), dns.TypeA)
	conn := &dns.Conn{Conn: c}
	if err := conn.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	m, err := conn.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A)
			return addr.Unmap(), m.Rcode
		}
	}
	return netip.Addr{}, m.Rcode
}

// get asks for https://name/ as a guest that trusts the gateway's CA would, with the placeholder of TOKEN.
func get(t *testing.T, g *netstacktest.Guest, ready readyLine, name string, port uint16) (status int, body string) {
	t.Helper()
	pem, err := os.ReadFile(ready.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	addr, _ := lookup(t, g, ready, name)
	if !addr.IsValid() {
		t.Fatalf("%s has no address", name)
	}
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return g.DialTCP(ctx, netip.AddrPortFrom(addr, port))
		},
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
	}
	defer tr.CloseIdleConnections()
	req, _ := http.NewRequest(http.MethodGet, "https://"+name+"/", nil)
	req.Header.Set("Authorization", ready.Placeholders["TOKEN"])
	resp, err := (&http.Client{Transport: tr, Timeout: 60 * time.Second}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestGatewayServesAForeignVMM(t *testing.T) {
	dir := t.TempDir()
	policy := write(t, "policy.toml", echoPolicy)
	ca := filepath.Join(dir, "ca.pem")
	cmd, ready := startGateway(t, "--policy", policy, "--listen", "unix://"+filepath.Join(dir, "n.sock"), "--ca-out", ca,
		"--audit", filepath.Join(dir, "audit.jsonl"), "--pcap", filepath.Join(dir, "x.pcapng"), "--keep")
	if ready.Placeholders["TOKEN"] == "" || ready.CA != ca {
		t.Errorf("ready line %+v, want the placeholder and the CA's path", ready)
	}
	guest := plug(t, ready)
	_, body := get(t, guest, ready, "echo.msb.internal", 443)
	var got echo.Reply
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.Headers["Authorization"][0] != ready.Placeholders["TOKEN"] {
		t.Errorf("got %s (%v), want the masked placeholder", body, err)
	}
	if c, err := guest.DialTCP(t.Context(), netip.MustParseAddrPort("10.0.0.1:80")); err == nil {
		_ = c.Close()
		t.Error("a private address could be connected to")
	}

	// A new policy takes effect at once; the next link finds the gateway with --keep.
	if err := os.WriteFile(policy, []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	guest.Close()
	again := plug(t, ready)
	deadline := time.Now().Add(60 * time.Second)
	for rcode := dns.RcodeSuccess; rcode != dns.RcodeNameError; _, rcode = lookup(t, again, ready, "echo.msb.internal") {
		if time.Now().After(deadline) {
			t.Fatal("the new policy is not in force")
		}
	}
	again.Close()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	for _, f := range []string{"audit.jsonl", "x.pcapng"} {
		if b, err := os.ReadFile(filepath.Join(dir, f)); err != nil || len(b) == 0 || strings.Contains(string(b), "a-real-value-0123456789") {
			t.Errorf("%s: %d bytes, %v; want a record without the secret's value", f, len(b), err)
		}
	}
}

// What became of a changed policy is said without an audit log too.
func TestI12_GatewayReportsBrokenPolicies(t *testing.T) {
	policy := write(t, "p.toml", "version = 1\n")
	cmd := command(t, nil, "gateway", "--policy", policy, "--listen", "unix://"+filepath.Join(t.TempDir(), "n.sock"))
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(policy, []byte("version = 1\n[egress]\ndefault = \"sure\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(said).ReadString('\n')
	if err != nil || !strings.Contains(line, "the old policy stays in force") || !strings.Contains(line, "p.toml:3:") {
		t.Errorf("on stderr %q, %v; want that the old policy stays, and the place", line, err)
	}
}

func TestGatewayEndsWithItsLink(t *testing.T) {
	cmd, ready := startGateway(t, "--policy", write(t, "p.toml", "version = 1\n"), "--listen", "unix://"+filepath.Join(t.TempDir(), "n.sock"))
	plug(t, ready).Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("exit: %v", err)
		}
	case <-time.After(60 * time.Second):
		t.Error("the gateway outlives its link")
	}
}

// A datagram socket is there when the ready line is, and an address in use is said without one.
func TestReadyGatewaysHaveTheirSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "n.sock")
	policy := write(t, "p.toml", "version = 1\n")
	cmd, _ := startGateway(t, "--policy", policy, "--listen", "unix://"+path, "--link", "vfkit")
	if info, err := os.Stat(path); err != nil || info.Mode()&os.ModeSocket == 0 || info.Mode().Perm() != 0o600 {
		t.Fatalf("at the ready line: %v, %v; want the socket with mode 0600", info, err)
	}
	second := command(t, nil, "gateway", "--policy", policy, "--listen", "unix://"+path, "--link", "vfkit")
	if out, err := second.Output(); err == nil || len(out) != 0 {
		t.Errorf("a second gateway on the same socket: %v, printed %q; want an error and no ready line", err, out)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket's file stays behind")
	}
}

// An inherited descriptor is looked at before the gateway calls itself ready.
func TestGatewayOnAnInheritedSocket(t *testing.T) {
	policy := write(t, "p.toml", "version = 1\n")
	if out, err := command(t, nil, "gateway", "--policy", policy, "--listen", "fd:9").Output(); err == nil || len(out) != 0 {
		t.Errorf("a descriptor that isn't open: %v, printed %q; want an error and no ready line", err, out)
	}
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(pair[1]) // else the gateway would keep its own link open
	theirs, ours := os.NewFile(uintptr(pair[0]), "theirs"), os.NewFile(uintptr(pair[1]), "ours")
	defer ours.Close()
	cmd := command(t, nil, "gateway", "--policy", policy, "--listen", "fd:3")
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, `"listen":"fd:3"`) {
		t.Errorf("ready line %q, %v", line, err)
	}
	_ = ours.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("when the link ended: %v", err)
	}
}

// TestI12_BadListenPathsHaveRemedies: the remedy is of what is wrong, and nothing says that a VMM may
// connect.
func TestI12_BadListenPathsHaveRemedies(t *testing.T) {
	t.Parallel()
	policy := write(t, "p.toml", "version = 1\n")
	dir := t.TempDir()
	file := write(t, "file", "")
	for _, link := range []string{"qemu", "vfkit"} {
		for path, want := range map[string]string{
			filepath.Join(dir, "no", "such", "net.sock"): "mkdir -p " + filepath.Join(dir, "no", "such"),
			file:                            "file left from one? Remove it",
			filepath.Join(file, "net.sock"): file + " is no directory",
			filepath.Join(dir, strings.Repeat("x", 120)): "at most 107 bytes",
		} {
			got := msb(t, nil, "gateway", "--policy", policy, "--link", link, "--listen", "unix://"+path)
			if got.code != exitOther || !strings.Contains(got.err, want) || got.out != "" {
				t.Errorf("%s, %s: exit %d, said %q, printed %q; want %q", link, path, got.code, got.err, got.out, want)
			}
		}
	}
}
