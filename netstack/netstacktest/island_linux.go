package netstacktest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Island is a host with an internet that no packet leaves: two network namespaces and a wire between
// them. Every address that isn't the host's own leads over the wire, and over there every address
// answers, 10.0.0.1 and 169.254.169.254 among them: whoever listens on all addresses of Internet is
// at each of them. What is let out shows, and is served.
//
// Processes and sockets made in Host.Do are on the host; those in Internet.Do are the internet's.
type Island struct {
	Host, Internet *TapGuest
}

const (
	// Uplink is the name of the host's card.
	Uplink = "uplink"
	// pingGroups lets everybody have an unprivileged ping socket, as systemd does
	// (net.ipv4.ping_group_range).
	pingGroups = "/proc/sys/net/ipv4/ping_group_range"
)

// islandRouters are the internet's own addresses on the wire.
var islandRouters = []string{"10.77.0.1/24", "fd77::1/64"}

// hostAddrs are the host's own addresses but loopback and link-local ones: private and public, of both
// families.
var hostAddrs = []netip.Prefix{
	netip.MustParsePrefix("10.77.0.2/24"), netip.MustParsePrefix("93.184.214.7/32"),
	netip.MustParsePrefix("fd77::2/64"), netip.MustParsePrefix("2606:2800:21e::7/128"),
}

// OpenIsland makes one. It needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN).
func OpenIsland() (*Island, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("an island needs root, to make network namespaces: run this as root, as CI does")
	}
	i := new(Island)
	var err error
	if i.Internet, err = OpenNamespace(); err != nil {
		return nil, err
	}
	if i.Host, err = OpenNamespace(); err != nil {
		i.Internet.Close()
		return nil, err
	}
	err = errors.Join(i.Host.Do(i.layWire), i.Host.Do(i.setUpHost), i.Internet.Do(setUpInternet), i.Host.Do(routeHost))
	if err != nil {
		i.Close()
		return nil, fmt.Errorf("making an island: %w", err)
	}
	return i, nil
}

// Close removes both. Sockets in them keep their namespace until they are closed.
func (i *Island) Close() {
	i.Host.Close()
	i.Internet.Close()
}

func (i *Island) layWire() error {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: Uplink, MTU: 1500})
	veth.PeerName = Uplink
	veth.PeerNamespace = netlink.NsFd(i.Internet.ns)
	return netlink.LinkAdd(veth)
}

// up brings a namespace's links up, with addresses on its end of the wire.
func up(addrs ...string) (uplink netlink.Link, err error) {
	for _, name := range []string{"lo", Uplink} {
		if uplink, err = netlink.LinkByName(name); err != nil {
			return nil, err
		}
		if err := netlink.LinkSetUp(uplink); err != nil {
			return nil, err
		}
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return nil, err
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(uplink, addr); err != nil {
			return nil, err
		}
	}
	return uplink, nil
}

func (i *Island) setUpHost() error {
	addrs := make([]string, len(hostAddrs))
	for n, a := range hostAddrs {
		addrs[n] = a.String()
	}
	if _, err := up(addrs...); err != nil {
		return err
	}
	return os.WriteFile(pingGroups, []byte("0 2147483647"), 0)
}

// routeHost sends what the host doesn't know over the wire; it needs both ends up.
func routeHost() error {
	link, err := netlink.LinkByName(Uplink)
	if err != nil {
		return err
	}
	for _, router := range islandRouters {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: netip.MustParsePrefix(router).Addr().AsSlice()}); err != nil {
			return err
		}
	}
	return nil
}

// setUpInternet makes every address a local one but the host's. The kernel answers only from addresses
// of its local table, so that is where "all" goes; the rules before it know the way back to the host.
func setUpInternet() error {
	if _, err := up(islandRouters...); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range hostAddrs {
		if err := toHost(a); err != nil {
			return err
		}
	}
	for family, all := range map[int]netip.Prefix{unix.AF_INET: netip.MustParsePrefix("0.0.0.0/0"), unix.AF_INET6: netip.MustParsePrefix("::/0")} {
		first := netlink.NewRule()
		first.Family, first.Table, first.Priority = family, unix.RT_TABLE_LOCAL, 0
		if err := netlink.RuleDel(first); err != nil {
			return err
		}
		first.Priority = 2
		if err := netlink.RuleAdd(first); err != nil {
			return err
		}
		route := &netlink.Route{Dst: ipNet(all), LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_LOCAL}
		if err := netlink.RouteAdd(route); err != nil {
			return err
		}
	}
	return nil
}

// toHost sends what the internet says to an address of the host over the wire.
func toHost(a netip.Prefix) error {
	link, err := netlink.LinkByName(Uplink)
	if err != nil {
		return err
	}
	single := netip.PrefixFrom(a.Addr(), a.Addr().BitLen())
	rule := netlink.NewRule()
	rule.Dst, rule.Table, rule.Priority = ipNet(single), unix.RT_TABLE_MAIN, 1
	if a.Addr().Is6() {
		rule.Family = unix.AF_INET6
	}
	if err := netlink.RuleAdd(rule); err != nil {
		return err
	}
	return netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(single)})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
