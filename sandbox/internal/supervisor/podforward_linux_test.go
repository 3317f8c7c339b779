package supervisor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/handoff"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// TestI5_NextHopsOfPodsAreTheNodes: those of every kind of route and of both families are among the addresses that no rule opens. The contrast is
// a namespace without routes.
func TestI5_NextHopsOfPodsAreTheNodes(t *testing.T) {
	const inNamespace = "MSB_TEST_IN_POD_NAMESPACE"
	if os.Getenv(inNamespace) == "" {
		t.Parallel()
		if os.Getuid() != 0 {
			t.Skip("only root makes namespaces here")
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("in a network namespace: %v\n%s", err, out)
		}
		return
	}
	if all, err := routeGateways(); err != nil || len(all) > 0 {
		t.Fatalf("without routes: %v, %v", all, err)
	}
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: podInterface}, PeerName: "far"}))
	far, err := netlink.LinkByName("far")
	must(t, err)
	must(t, netlink.LinkSetUp(far))
	link, err := netlink.LinkByName(podInterface)
	must(t, err)
	must(t, netlink.LinkSetUp(link))
	for _, a := range []string{"10.213.7.5/24", "2a0a:1::5/64"} {
		addr, err := netlink.ParseAddr(a)
		must(t, err)
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		must(t, netlink.AddrAdd(link, addr))
	}
	to := func(s string) *net.IPNet {
		_, n, err := net.ParseCIDR(s)
		must(t, err)
		return n
	}
	hop := func(s string) *netlink.NexthopInfo {
		return &netlink.NexthopInfo{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(s)}
	}
	index := link.Attrs().Index
	for _, r := range []*netlink.Route{
		{LinkIndex: index, Dst: to("0.0.0.0/0"), Gw: net.ParseIP("10.213.7.1")},
		{LinkIndex: index, Dst: to("::/0"), Gw: net.ParseIP("2a0a:1::1")},
		{Dst: to("203.0.113.0/24"), MultiPath: []*netlink.NexthopInfo{hop("10.213.7.2"), hop("10.213.7.3")}},
		{Dst: to("2001:db8::/32"), MultiPath: []*netlink.NexthopInfo{hop("2a0a:1::2"), hop("2a0a:1::3")}},
		{LinkIndex: index, Dst: to("198.51.100.0/24"), Via: &netlink.Via{AddrFamily: unix.AF_INET6, Addr: net.ParseIP("2a0a:1::4")}},
	} {
		must(t, netlink.RouteAdd(r))
	}
	inode, err := ownNetwork()
	must(t, err)
	sup := newSupervisor(&state.Plan{Pod: &state.Pod{Namespace: inode, Node: []netip.Addr{netip.MustParseAddr("192.0.2.9")}}}, nil, nil)
	must(t, readPod(sup))
	p := sup.pod
	if p.address4().String() != "10.213.7.5" || p.address6().String() != "2a0a:1::5" {
		t.Errorf("the pod has %v and %v", p.four, p.six)
	}
	for _, want := range []string{"192.0.2.9", "10.213.7.1", "10.213.7.2", "10.213.7.3", "2a0a:1::1", "2a0a:1::2", "2a0a:1::3", "2a0a:1::4"} {
		if !slices.Contains(p.node(), netip.MustParseAddr(want)) {
			t.Errorf("%s is not among %v", want, p.node())
		}
	}
	for _, a := range p.node() {
		if !a.IsValid() || a.Is4In6() || a.IsUnspecified() {
			t.Errorf("%v is among %v", a, p.node())
		}
	}
}

// loopbackGuest forwards to a server on its loopback by port 40000, and keeps what it was asked.
type loopbackGuest struct {
	agentpb.UnimplementedLoopbackServer
	mu    sync.Mutex
	asked []*agentpb.ForwardRequest
	err   error
}

func (g *loopbackGuest) Forward(_ context.Context, r *agentpb.ForwardRequest) (*agentpb.ForwardResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, r)
	return &agentpb.ForwardResponse{Port: 40000}, g.err
}

// TestI15_PortsOfTheAgentStayShut: by the port at which a pod's agent leads to a loopback server, no client of the pod's network gets
// there, while the server's own port is as it was. The contrast is the same list of sockets before.
func TestI15_PortsOfTheAgentStayShut(t *testing.T) {
	t.Parallel()
	for name, pod := range map[string]*podNetwork{
		"IPv4": {Pod: new(state.Pod), four: netip.MustParseAddr("10.213.7.5"), six: netip.MustParseAddr("2a0a:1::5")}, "IPv6": {Pod: new(state.Pod), six: netip.MustParseAddr("2a0a:1::5")}, "no pod": nil,
	} {
		for _, udp := range []bool{false, true} {
			g := &loopbackGuest{}
			host, guest := net.Pipe()
			srv := grpc.NewServer(grpc.WaitForHandlers(true))
			agentpb.RegisterLoopbackServer(srv, g)
			served := make(chan error, 1)
			go func() { served <- srv.Serve(handoff.Of(guest)) }()
			client, err := agentclient.Attach(host)
			must(t, err)
			w, link := gatewaytest.Open(t, gatewaytest.Policy(t, ""), func(c *gateway.Config) { pod.link(&c.Link); c.Pod = pod.first() })
			s := newSupervisor(&state.Plan{}, nil, nil)
			s.gateway, s.pod = w.Gateway, pod
			s.greeted.Store(client)
			l := w.Gateway.Link()
			own, gatewayAt := l.Guest4, l.Gateway4
			if name == "IPv6" {
				own, gatewayAt = l.Guest6, l.Gateway6
			}
			network, other, proto := "tcp", "udp", egress.TCP
			if udp {
				network, other, proto = "udp", "tcp", egress.UDP
			}
			sockets := socketsAt(
				fmt.Sprint(network, " ", netip.AddrPortFrom(own, 40000)), fmt.Sprint(other, " ", netip.AddrPortFrom(own, 40000)), fmt.Sprint(network, " ", netip.AddrPortFrom(own, 8080)), network+" 0.0.0.0:40000")
			if n := len(s.podPorts.wanted(sockets)); n != 4 {
				t.Errorf("%s, udp %t: before, %d of 4 are wanted", name, udp, n)
			}
			if by, err := s.ports.forward(t.Context(), proto, 8080); by != 40000 || err != nil {
				t.Errorf("%s: %d, %v", name, by, err)
			}
			want := []podPort{{netip.AddrPortFrom(own, 8080), udp}, {netip.AddrPortFrom(own, 40000), !udp}}
			if pod == nil { // which has no sockets opened
				want = s.podPorts.wanted(sockets)
			}
			if got := s.podPorts.wanted(sockets); !slices.Equal(got, want) {
				t.Errorf("%s, udp %t: %v, want %v", name, udp, got, want)
			}
			if r := g.asked[0]; r.GetPort() != 8080 || r.GetUdp() != udp || !slices.Equal(r.GetListen(), own.AsSlice()) || !slices.Equal(r.GetFrom(), gatewayAt.AsSlice()) {
				t.Errorf("%s: the guest is asked %v", name, r)
			}
			_ = link.Close()
			_ = client.Close()
			srv.Stop()
			<-served
		}
	}
}

// TestPodsLinksHaveNoNeighbours: no DHCP, and prefixes of one address; what is no pod has its link unchanged.
func TestPodsLinksHaveNoNeighbours(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*podNetwork{"none": nil, "without CNI": {Pod: new(state.Pod)}, "IPv4": {Pod: new(state.Pod), four: netip.MustParseAddr("10.0.0.5")}, "IPv6": {Pod: new(state.Pod), six: netip.MustParseAddr("fd00::5")}} {
		l := netstack.Config{DHCP: true}
		p.link(&l)
		if l.DHCP == p.ofCNI() || p.ofCNI() && (l.Prefix4 != 32 || l.Guest4 == l.Gateway4) || p.address6().IsValid() && (l.Prefix6 != 128 || l.Guest6 != p.six) {
			t.Errorf("%s: %+v", name, l)
		}
		first := map[string]string{"none": "invalid IP", "without CNI": "192.168.127.2", "IPv4": "10.0.0.5", "IPv6": "fd00::5"}[name]
		if p.first().String() != first {
			t.Errorf("%s: the first address is %v", name, p.first())
		}
	}
}
