package egress

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// kernelOwns asks with what rules of the kernel's look at (ip rule): transport
// and port; the user is whoever asks.
func kernelOwns(proto Proto, a netip.Addr, port uint16) (bool, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_REQUEST)
	family, number := uint8(unix.AF_INET), map[Proto]uint8{TCP: unix.IPPROTO_TCP, UDP: unix.IPPROTO_UDP, ICMP: unix.IPPROTO_ICMP}[proto]
	if a.Is6() {
		family = unix.AF_INET6
		if proto == ICMP {
			number = unix.IPPROTO_ICMPV6
		}
	}
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Dst_len: uint8(a.BitLen())}})
	req.AddData(nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{number}))
	if proto != ICMP {
		req.AddData(nl.NewRtAttr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, port)))
	}
	answers, err := req.Execute(unix.NETLINK_ROUTE, 0)
	switch {
	case errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.EACCES):
		return false, nil // no route, or one of type unreachable or prohibit: no dial goes there
	case a.Is6() && (errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT)):
		return false, nil // a kernel without IPv6
	case err != nil:
		return true, err
	case len(answers) == 0 || len(answers[0]) < unix.SizeofRtMsg:
		return true, unix.EBADMSG
	}
	switch nl.DeserializeRtMsg(answers[0]).Type {
	case unix.RTN_LOCAL, unix.RTN_BROADCAST, unix.RTN_ANYCAST:
		return true, nil
	}
	return false, nil
}
