package supervisor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/upstream"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/sandbox/internal/state"
)

func addrs(all ...string) (out []net.Addr) {
	for _, s := range all {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			panic(err)
		}
		out = append(out, &net.IPNet{IP: ip, Mask: n.Mask})
	}
	return out
}

// TestGuestsOfPodsHaveThePodsAddresses: the first of each family, as one address without neighbours, and none of a family
// that the pod doesn't have. What has no network of CNI's has the addresses of any sandbox.
func TestGuestsOfPodsHaveThePodsAddresses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		on                        []net.Addr
		addresses, gateways, dnss []string
	}{
		"dual stack": {
			addrs("fe80::1/64", "10.213.7.5/24", "10.213.7.9/24", "2a0a:1::5/64"),
			[]string{"10.213.7.5/32", "2a0a:1::5/128"}, []string{"169.254.127.1", "fd6d:7362::1"}, []string{"169.254.127.1"},
		},
		"one address": {addrs("192.168.127.1/32"), []string{"192.168.127.1/32"}, []string{"169.254.127.1"}, []string{"169.254.127.1"}},
		"IPv6 alone":  {addrs("fd00::7/128", "fe80::2/64"), []string{"fd00::7/128"}, []string{"fd6d:7362::1"}, []string{"fd6d:7362::1"}},
		"none": {
			addrs("fe80::1/64"),
			[]string{"192.168.127.2/24", "fd6d:7362::2/64"}, []string{"192.168.127.1", "fd6d:7362::1"}, []string{"192.168.127.1"},
		},
	} {
		p := &podNetwork{Pod: new(state.Pod)}
		p.choose(c.on)
		cfg := netstack.Config{Handler: nopHandler{}}
		p.link(&cfg)
		s, err := netstack.New(cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n := networkOf(s.Config(), nil, p)
		must(t, s.Close())
		if got := texts(n.Addresses); !slices.Equal(got, c.addresses) {
			t.Errorf("%s: addresses %v", name, got)
		}
		if got := texts(n.Gateways); !slices.Equal(got, c.gateways) {
			t.Errorf("%s: gateways %v", name, got)
		}
		if got := texts(n.DNSServers); !slices.Equal(got, c.dnss) {
			t.Errorf("%s: resolvers %v", name, got)
		}
	}
}

type nopHandler struct{ netstack.Handler }

func texts[T interface{ String() string }](all []T) (out []string) {
	for _, a := range all {
		out = append(out, a.String())
	}
	return out
}

// TestI2_PodsAreInTheirNamespace: a supervisor that is not in the namespace of its plan starts nothing.
func TestI2_PodsAreInTheirNamespace(t *testing.T) {
	t.Parallel()
	own, err := ownNetwork()
	must(t, err)
	for inode, ok := range map[uint64]bool{own: true, own + 1: false, 0: false} {
		s := newSupervisor(&state.Plan{Pod: &state.Pod{Namespace: inode, Node: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}, nil, nil)
		if err := readPod(s); ok != (err == nil) || !ok && !errors.Is(err, errPod) {
			t.Errorf("%d: %v", inode, err)
		} else if ok && !slices.Contains(s.pod.node(), s.plan.Pod.Node[0]) {
			t.Errorf("the node has %v", s.pod.node())
		}
	}
}

// asked are the resolvers that are asked for a name by a resolv.conf.
func asked(t *testing.T, file string) (all []string) {
	t.Helper()
	r, err := upstream.New(nil, upstream.Options{
		ResolvConf: file, Clock: func() time.Duration { return 0 },
		Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
			if !slices.Contains(all, addr) {
				all = append(all, addr)
			}
			return nil, errors.New("no network")
		},
	})
	must(t, err)
	_, _, err = r.Ask(t.Context(), upstream.Query{Name: []byte("\x07example\x03com\x00"), Type: dns.TypeA})
	if err == nil {
		t.Error("a question without a network was answered")
	}
	return all
}

// resolvConfOf is the file that a pod's supervisor follows, of one that is a file of the node.
func resolvConfOf(t *testing.T, file string, only []netip.Addr) string {
	t.Helper()
	inode, err := ownNetwork()
	must(t, err)
	s := newSupervisor(&state.Plan{Dir: t.TempDir(), Pod: &state.Pod{Namespace: inode, ResolvConf: file, Nameservers: only}}, nil, nil)
	must(t, readPod(s))
	return s.pod.resolvConf()
}

// TestI6_GuestsDontChooseTheirResolvers: a pod's resolv.conf is mounted in its containers, which may write to it. The twin is a
// resolver that follows that file.
func TestI6_GuestsDontChooseTheirResolvers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	must(t, os.WriteFile(file, []byte("nameserver 192.0.2.53\n"), 0o600))
	kept := resolvConfOf(t, file, nil)
	must(t, os.WriteFile(file, []byte("nameserver 203.0.113.66\n"), 0o600)) // by the guest
	if got := asked(t, kept); !slices.Equal(got, []string{"192.0.2.53:53"}) {
		t.Errorf("the guest's change has %q asked", got)
	}
	if got := asked(t, file); !slices.Equal(got, []string{"203.0.113.66:53"}) {
		t.Errorf("the twin asks %q", got)
	}
}

// TestI15_PodsHaveTheNodesResolvers: whoever writes a pod names its resolvers by dnsConfig, and gets those that the operator
// names. The twin is a node whose operator names none.
func TestI15_PodsHaveTheNodesResolvers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	must(t, os.WriteFile(file, []byte("search a.example\nnameserver 203.0.113.66\nnameserver  10.96.0.10 \nnameserver fe80::1%eth0\n nameserver\t203.0.113.67\n"), 0o600))
	if got := asked(t, resolvConfOf(t, file, []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("10.96.0.11")})); !slices.Equal(got, []string{"10.96.0.10:53"}) {
		t.Errorf("asked %q", got)
	}
	if got := asked(t, resolvConfOf(t, file, []netip.Addr{})); !slices.Equal(got, []string{"127.0.0.1:53"}) { // which is refused (gateway)
		t.Errorf("without any, asked %q", got)
	}
	if got := asked(t, resolvConfOf(t, file, nil)); !slices.Contains(got, "203.0.113.66:53") {
		t.Errorf("the twin asks %q", got)
	}
}

// TestI11_ResolvConfsOfPodsAreBounded: whoever writes the pod's file has this process copy no more than that.
func TestI11_ResolvConfsOfPodsAreBounded(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	text := "nameserver 192.0.2.53\n"
	must(t, os.WriteFile(file, []byte(text+strings.Repeat("#", 8<<20)), 0o600))
	info, err := os.Stat(resolvConfOf(t, file, nil))
	must(t, err)
	if info.Size() > 1<<20 || info.Size() < int64(len(text)) || info.Mode().Perm() != 0o600 {
		t.Errorf("%d bytes are copied, with the mode %s", info.Size(), info.Mode())
	}
}

// TestI2_SandboxesStartInTheirPodsNamespace only, and what they reach there is not the node.
func TestI2_SandboxesStartInTheirPodsNamespace(t *testing.T) {
	t.Parallel()
	own, err := ownNetwork()
	must(t, err)
	p := newPlan(t, t.TempDir(), "")
	p.Pod = &state.Pod{Namespace: own + 1}
	s, _ := superviseFake(t, &guestVM{}, p)
	if err := <-s.ended; !errors.Is(err, errPod) {
		t.Errorf("in another namespace: %v", err)
	}
	p = newPlan(t, t.TempDir(), "")
	p.Pod, p.Policy = &state.Pod{Namespace: own, Node: []netip.Addr{netip.MustParseAddr(unrouted)}}, "version = 1\n[egress]\ndefault = \"public\"\n"
	p.Audit = filepath.Join(t.TempDir(), "audit.jsonl")
	followed := make(chan struct{})
	n := superviseNet(t, p, func(s *supervisor) {
		s.podPorts.sockets = func(context.Context) ([]agentclient.ListeningSocket, error) {
			close(followed)
			return nil, agentclient.ErrClosed
		}
	})
	<-followed
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if c, err := n.net.DialTCP(ctx, netip.MustParseAddrPort(unrouted+":80")); err == nil {
		t.Error("the node is reached")
		_ = c.Close()
	}
	refused := false
	for _, e := range n.end(t) {
		refused = refused || e.Kind == audit.FlowOpen && e.Action == "deny" && e.Dst.String() == unrouted
	}
	if !refused {
		t.Error("the log has no refusal")
	}
}
