package egress

import (
	"fmt"
	"net/netip"
)

// KernelOwns asks the host's kernel where a packet to dst would go, and reports
// whether the kernel keeps it: an address or a local route of the host, a
// broadcast address of one of its networks, an anycast address that it answers
// for. The IPv4 addresses in an IPv6 one are asked for too. A kernel that can't
// be asked keeps everything.
func KernelOwns(proto Proto, dst netip.AddrPort) (bool, error) {
	a := dst.Addr().Unmap().WithZone("")
	owns, err := kernelOwns(proto, a, dst.Port())
	if a.Is6() && !owns {
		var e embedded
		e.find(a.As16())
		for _, inner := range e.addrs[:e.n] {
			if owns, err = kernelOwns(proto, netip.AddrFrom4(inner), dst.Port()); owns {
				break
			}
		}
	}
	if err != nil {
		return true, fmt.Errorf("%v is refused, since the kernel doesn't say where it leads: %w", dst.Addr(), err)
	}
	return owns, nil
}
