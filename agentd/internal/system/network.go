//go:build linux

package system

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network is how the guest's one link is set up.
type Network struct {
	MAC       net.HardwareAddr
	Addresses []netip.Prefix
	Gateways  []netip.Addr
	// MTU in bytes; 0 keeps the device's.
	MTU int
}

// LoopbackUp brings lo up.
func LoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// NoAutoconf tells the kernel that the addresses of the machine's devices are the host's to give: no router advertisement
// may add any, and a second of duplicate detection on a link of two buys nothing.
func NoAutoconf() {
	devices, _ := os.ReadDir("/proc/sys/net/ipv6/conf") // a kernel without IPv6 has none
	for _, d := range devices {
		if d.Name() == "all" || d.Name() == "default" { // devices that the workload makes are its own
			continue
		}
		for _, key := range []string{"accept_ra", "autoconf", "accept_dad", "dad_transmits"} {
			_ = setSysctl("net/ipv6/conf/"+d.Name()+"/"+key, "0")
		}
	}
}

// Devices are the machine's network devices. They are there before the first process, and listed once: in a machine that
// is saved before that.
type Devices struct{ links []netlink.Link }

// List lists them. Without it, or if it failed, they are listed at each use.
func (d *Devices) List() (err error) {
	if d.links, err = netlink.LinkList(); err != nil {
		return fmt.Errorf("list network devices: %w", err)
	}
	return nil
}

// RenewMACs gives every device but lo another MAC address: the machine's own
// card mac, those that the kernel made for itself a random one. In copies of one
// saved machine they are all the same.
func (d *Devices) RenewMACs(mac net.HardwareAddr) error {
	if len(d.links) == 0 {
		if err := d.List(); err != nil {
			return err
		}
	}
	for _, l := range d.links {
		attrs := l.Attrs()
		if attrs.Flags&net.FlagLoopback != 0 || len(attrs.HardwareAddr) != len(mac) {
			continue
		}
		own := mac
		if l.Type() != "device" {
			own = make(net.HardwareAddr, len(mac))
			_, _ = rand.Read(own) // crypto/rand never fails
			own[0] = own[0]&^1 | 2
		}
		if err := netlink.LinkSetHardwareAddr(l, own); err != nil {
			return fmt.Errorf("give %s the address %s: %w", attrs.Name, own, err)
		}
		attrs.HardwareAddr = own
	}
	return nil
}

// find returns the device with that MAC address.
func (d *Devices) find(mac net.HardwareAddr) (netlink.Link, error) {
	has := func(l netlink.Link) bool { return bytes.Equal(l.Attrs().HardwareAddr, mac) }
	i := slices.IndexFunc(d.links, has)
	if i < 0 {
		if err := d.List(); err != nil {
			return nil, err
		}
		i = slices.IndexFunc(d.links, has)
	}
	if i < 0 {
		return nil, fmt.Errorf("no network device has the address %s; the machine was started with another", mac)
	}
	return d.links[i], nil
}

// Apply sets the link up by netlink.
func (n Network) Apply(devices *Devices) error {
	link, err := devices.find(n.MAC)
	if err != nil {
		return err
	}
	name := link.Attrs().Name
	if n.MTU > 0 {
		if err := netlink.LinkSetMTU(link, n.MTU); err != nil {
			return fmt.Errorf("set the MTU of %s to %d: %w", name, n.MTU, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring %s up: %w", name, err)
	}
	for _, p := range n.Addresses {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, addr); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("give %s the address %s: %w", name, p, err)
		}
	}
	for _, gw := range n.Gateways {
		routes := []*netlink.Route{{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}}
		if !slices.ContainsFunc(n.Addresses, func(p netip.Prefix) bool { return p.Contains(gw) }) {
			to := &net.IPNet{IP: gw.AsSlice(), Mask: net.CIDRMask(gw.BitLen(), gw.BitLen())}
			routes = slices.Insert(routes, 0, &netlink.Route{LinkIndex: link.Attrs().Index, Dst: to, Scope: netlink.SCOPE_LINK})
		}
		for _, route := range routes {
			if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
				return fmt.Errorf("route by %s: %w", gw, err)
			}
		}
	}
	return nil
}
