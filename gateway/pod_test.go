package gateway_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
)

// startPod is a world whose guest is a pod with the node 192.0.2.1.
func startPod(t *testing.T, policy string, change func(*gateway.Config)) *gatewaytest.World {
	t.Helper()
	return gatewaytest.StartWith(t, gatewaytest.Policy(t, policy), func(c *gateway.Config) {
		c.Link.Guest4, c.Link.Gateway4, c.Link.Prefix4 = netip.MustParseAddr("10.213.7.5"), netip.MustParseAddr("169.254.127.1"), 32
		c.Link.DHCP = false
		c.Pod, c.Node = c.Link.Guest4, []netip.Addr{netip.MustParseAddr("192.0.2.1")}
		if change != nil {
			change(c)
		}
	})
}

// tells serves the guest's port 8080: each client is sent the address that the guest sees of it, on five bytes.
func tells(t *testing.T, w *gatewaytest.World, clients chan<- netip.Addr) {
	t.Helper()
	l, err := w.Guest.ListenTCP(8080)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			clients <- netip.MustParseAddrPort(c.RemoteAddr().String()).Addr()
			_, _ = io.WriteString(c, "hello")
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
}

// TestPodsClients: without a rule every client connects to a pod's port, and the guest sees its address. A rule narrows it to
// its own clients, beside the pod itself and the node, whose probes come from there. The twin is a published port, which is
// for this machine alone, and shows the gateway's address.
func TestPodsClients(t *testing.T) {
	t.Parallel()
	const narrow = "[[ingress.allow]]\nname = \"frontends\"\ncidrs = [\"10.213.8.0/24\"]\n"
	for _, c := range []struct {
		policy, client string
		pod            bool
		sees           string // "" if it may not connect
		rule, reason   string
	}{
		{"", "10.213.8.9:5000", true, "10.213.8.9", "", "pod_open"},
		{"", "203.0.113.9:5000", true, "203.0.113.9", "", "pod_open"},
		{"", "203.0.113.9:5000", false, "", "", "no_rule"},
		{narrow, "10.213.8.9:5000", true, "10.213.8.9", "frontends", "rule"},
		{narrow, "10.213.8.9:5000", false, "169.254.127.1", "frontends", "rule"},
		{narrow, "10.213.9.9:5000", true, "", "", "no_rule"},
		{narrow, "192.0.2.1:5000", true, "192.0.2.1", "", "this_machine"},
		{narrow, "127.0.0.1:5000", true, "169.254.127.1", "", "this_machine"},
	} {
		w := startPod(t, c.policy, func(cfg *gateway.Config) {
			if !c.pod {
				cfg.Pod = netip.Addr{}
			}
		})
		clients := make(chan netip.Addr, 1)
		tells(t, w, clients)
		answered, conn := asksAs(t, w, c.client)
		if answered != (c.sees != "") {
			t.Errorf("%+v: answered %v", c, answered)
			continue
		}
		if answered {
			if got := <-clients; got.String() != c.sees {
				t.Errorf("%+v: the guest sees %s", c, got)
			}
			_ = conn.Close()
			w.Close()
		}
		if ev := w.Audit.Wait(t, audit.PortFlow, 1)[0]; ev.Client.String() != c.client || ev.Rule != c.rule || ev.Reason != c.reason || ev.Port != 8080 {
			t.Errorf("%+v: %+v", c, ev)
		}
	}
}

// TestI5_PodsLoopbackServersAreTheirsAlone: what listens on the guest's 127.0.0.1 is reached from a loopback address, as
// port-forward does, and from nowhere else. The twin is a published port, by which its operator means that server.
func TestI5_PodsLoopbackServersAreTheirsAlone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		client  string
		pod, ok bool
	}{{"127.0.0.1:5000", true, true}, {"10.213.8.9:5000", true, false}, {"192.0.2.1:5000", true, false}, {"192.0.2.1:5000", false, true}} {
		w := startPod(t, "", func(cfg *gateway.Config) {
			if !c.pod {
				cfg.Pod = netip.Addr{}
			}
			cfg.Forward = func(_ context.Context, proto egress.Proto, port uint16) (uint16, error) {
				if proto != egress.TCP || port != 8080 {
					return 0, errors.New("another port")
				}
				return 8081, nil
			}
		})
		greets(t, w, 8081)
		if answered, _ := asksAs(t, w, c.client); answered != c.ok {
			t.Errorf("%+v: answered %v", c, answered)
		}
	}
}

// TestPodsConnectionsOutliveTheirPort: a server that closes its listening socket keeps its connections. Those of a published
// port, which somebody takes back, end: the twin.
func TestPodsConnectionsOutliveTheirPort(t *testing.T) {
	t.Parallel()
	for _, pod := range []bool{true, false} {
		w := startPod(t, "", func(cfg *gateway.Config) {
			if !pod {
				cfg.Pod = netip.Addr{}
			}
		})
		l, err := w.Guest.ListenTCP(8080)
		if err != nil {
			t.Fatal(err)
		}
		w.Resolve("up.example", dns.TypeA) // the link is up then
		outside, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			gateway.Publish(t.Context(), w.Gateway, outside, 8080)
		}()
		client, err := net.Dial("tcp", outside.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = outside.Close()
		if pod {
			_, _ = io.WriteString(server, "after")
			if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
				t.Errorf("a connection of a port that is closed: %v", err)
			}
			_, _ = client.Close(), server.Close()
		} else if _, err := client.Read(make([]byte, 1)); err == nil {
			t.Error("a connection of a port that is taken back goes on")
		}
		<-ended
		_, _ = client.Close(), l.Close()
	}
}

// TestI6_PodsDoNotAnswerThemselves: a resolver at a loopback address, or one of the pod's own, is the guest, and is not asked.
// The twins ask one elsewhere, and a sandbox that is no pod may have its resolver on this machine.
func TestI6_PodsDoNotAnswerThemselves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		resolver  string
		pod, owns bool
		want      int
	}{
		{"192.0.2.53", true, false, dns.RcodeSuccess}, {"192.0.2.53", true, true, dns.RcodeServerFailure}, {"192.0.2.53", false, true, dns.RcodeSuccess},
		{"127.0.0.1", true, false, dns.RcodeServerFailure}, {"127.0.0.1", false, false, dns.RcodeSuccess},
	} {
		resolvConf := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(resolvConf, []byte("search svc.cluster.local\nnameserver "+c.resolver+"\noptions ndots:5\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		asked := &resolverAt{to: gatewaytest.Resolver}
		w := startPod(t, "[[egress.allow]]\nhosts = [\"web.example.com\"]\nports = [80]\n", func(cfg *gateway.Config) {
			cfg.ResolvConf = resolvConf
			cfg.Policy.DNS.Servers = []policies.Server{{Kind: policies.ServerSystem}}
			cfg.Owns = func(_ egress.Proto, dst netip.AddrPort) bool { return c.owns && dst.Port() == 53 }
			asked.Dialer, cfg.Dialer = cfg.Dialer, asked
			if !c.pod {
				cfg.Pod = netip.Addr{}
			}
		})
		w.Record("web.example.com. 60 IN A " + site)
		if m := w.Resolve("web.example.com", dns.TypeA); m.Rcode != c.want {
			t.Errorf("%+v: %s", c, dns.RcodeToString[m.Rcode])
		}
		if got := asked.last.Load(); c.want == dns.RcodeSuccess && (got == nil || *got != c.resolver+":53") || c.want != dns.RcodeSuccess && got != nil {
			t.Errorf("%+v: asked %v", c, got)
		}
		w.Close()
	}
}

// resolverAt leads every dial to port 53 to one resolver.
type resolverAt struct {
	gateway.Dialer
	to   string
	last atomic.Pointer[string]
}

// DialContext implements gateway.Dialer.
func (r *resolverAt) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, port, _ := net.SplitHostPort(addr); port == "53" {
		r.last.Store(&addr)
		return r.Dialer.DialContext(ctx, network, r.to)
	}
	return r.Dialer.DialContext(ctx, network, addr)
}
