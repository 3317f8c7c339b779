package supervisor

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

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
