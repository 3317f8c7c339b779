package supervisor

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ownNetwork is the inode of the network namespace that this process is in.
func ownNetwork() (uint64, error) {
	var st unix.Stat_t
	err := unix.Stat("/proc/self/ns/net", &st)
	return st.Ino, err
}

// routeGateways are the next hops of the namespace's routes.
func routeGateways() (all []netip.Addr, err error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	add := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, a.Unmap())
		}
	}
	for _, r := range routes {
		add(r.Gw)
		for _, hop := range r.MultiPath {
			add(hop.Gw)
		}
		if via, ok := r.Via.(*netlink.Via); ok {
			add(via.Addr)
		}
	}
	return all, nil
}
