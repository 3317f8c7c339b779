//go:build linux

package system

import (
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestGatewaysOutsideOfThePrefix are reached on the link, and everything else by them, from the guest's own addresses.
func TestGatewaysOutsideOfThePrefix(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its namespace with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("it needs root, as make test does: ", err)
	}
	if err := LoopbackUp(); err != nil {
		t.Fatal(err)
	}
	// A pair, since the link has to be up at both ends for routes by it to count.
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "own0"}, PeerName: "far0"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	far, err := netlink.LinkByName("far0")
	if err == nil {
		err = netlink.LinkSetUp(far)
	}
	if err != nil {
		t.Fatal(err)
	}
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	own, err := netlink.LinkByName("own0")
	if err == nil {
		err = netlink.LinkSetHardwareAddr(own, mac)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := Network{
		MAC:       mac,
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.213.7.5/32"), netip.MustParsePrefix("2a0a:1::5/128")},
		Gateways:  []netip.Addr{netip.MustParseAddr("169.254.127.1"), netip.MustParseAddr("fd6d:7362::1")},
	}
	for range 2 { // a restored machine's is applied again
		if err := n.Apply(new(Devices)); err != nil {
			t.Fatal(err)
		}
	}
	for i, to := range []string{"203.0.113.7", "2001:db8::7", "10.213.7.6", "2a0a:1::6", "169.254.127.1", "fd6d:7362::1"} {
		routes, err := netlink.RouteGet(netip.MustParseAddr(to).AsSlice())
		if err != nil || len(routes) != 1 {
			t.Errorf("%s: %v, %v", to, routes, err)
			continue
		}
		src := n.Addresses[i%2].Addr()
		if !slices.Equal(routes[0].Src, src.AsSlice()) && !routes[0].Src.Equal(src.AsSlice()) || i < 4 && !routes[0].Gw.Equal(n.Gateways[i%2].AsSlice()) {
			t.Errorf("%s: from %v by %v", to, routes[0].Src, routes[0].Gw)
		}
	}
}
