package netstack

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/time/rate"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	// leaseTime is long: the one lease there is never changes.
	leaseTime = 24 * time.Hour
	// dhcpRate bounds answers a second; floods above it are dropped.
	dhcpRate  = 10
	dhcpBurst = 20
)

// dhcpServer gives the one lease to the leased MAC. It holds no state that a
// client could grow: floods with random hardware addresses find nothing to
// exhaust.
type dhcpServer struct {
	stack *Stack
	limit *rate.Limiter
}

func newDHCPServer(s *Stack) *dhcpServer {
	return &dhcpServer{stack: s, limit: rate.NewLimiter(dhcpRate, dhcpBurst)}
}

// answer replies to a frame that the guard took for a client's, or says why not.
func (d *dhcpServer) answer(frame []byte) frameguard.Verdict {
	packet := frame[header.EthernetMinimumSize:]
	packet = packet[:binary.BigEndian.Uint16(packet[2:])]
	udp := header.UDP(packet[header.IPv4MinimumSize:])
	if int(udp.Length()) > len(udp) || udp.Length() < header.UDPMinimumSize || !d.limit.Allow() {
		return frameguard.DropDHCP
	}
	m, err := dhcpv4.FromBytes(udp[header.UDPMinimumSize:udp.Length()])
	if err != nil || m.OpCode != dhcpv4.OpcodeBootRequest || len(m.ClientHWAddr) != 6 ||
		!bytes.Equal(m.ClientHWAddr, d.stack.guard.GuestMAC()) {
		return frameguard.DropDHCP
	}
	reply := d.reply(m)
	if reply == nil {
		return frameguard.DropDHCP
	}
	d.send(reply)
	return frameguard.Pass
}

// reply is nil for what needs none (release, decline, a request to another
// server).
func (d *dhcpServer) reply(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	cfg := &d.stack.cfg
	kind := dhcpv4.MessageTypeOffer
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
	case dhcpv4.MessageTypeRequest:
		kind = dhcpv4.MessageTypeAck
		if id := m.ServerIdentifier(); id != nil && !id.Equal(cfg.Gateway4.AsSlice()) {
			return nil
		}
		if ip := requested(m); ip.IsValid() && ip != cfg.Guest4 {
			return d.build(m, dhcpv4.MessageTypeNak)
		}
	case dhcpv4.MessageTypeInform:
		kind = dhcpv4.MessageTypeAck
	default:
		return nil
	}
	return d.build(m, kind)
}

// requested is the address that a client asks for, invalid for none.
func requested(m *dhcpv4.DHCPv4) netip.Addr {
	ip := m.RequestedIPAddress()
	if ip == nil {
		ip = m.ClientIPAddr
	}
	a, ok := netip.AddrFromSlice(ip.To4())
	if !ok || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

func (d *dhcpServer) build(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	cfg := &d.stack.cfg
	gateway := net.IP(cfg.Gateway4.AsSlice())
	mods := []dhcpv4.Modifier{dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(gateway))}
	if kind != dhcpv4.MessageTypeNak {
		mods = append(mods,
			dhcpv4.WithNetmask(net.CIDRMask(cfg.Prefix4, 32)),
			dhcpv4.WithRouter(gateway),
			dhcpv4.WithDNS(cfg.DNS.AsSlice()),
			dhcpv4.WithOption(dhcpv4.Option{Code: dhcpv4.OptionInterfaceMTU, Value: dhcpv4.Uint16(cfg.MTU)}),
		)
		if m.MessageType() != dhcpv4.MessageTypeInform {
			mods = append(mods, dhcpv4.WithYourIP(cfg.Guest4.AsSlice()),
				dhcpv4.WithOption(dhcpv4.OptIPAddressLeaseTime(leaseTime)))
		}
	}
	reply, err := dhcpv4.NewReplyFromRequest(m, mods...)
	if err != nil {
		return nil
	}
	return reply
}

// send broadcasts on IP, because the client may have no address yet, to the
// guest's MAC.
func (d *dhcpServer) send(m *dhcpv4.DHCPv4) {
	body := m.ToBytes()
	frame := make([]byte, header.EthernetMinimumSize+header.IPv4MinimumSize+header.UDPMinimumSize+len(body))
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	src, dst := addressOf(d.stack.cfg.Gateway4), header.IPv4Broadcast
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(ip)),
		TTL:         gatewayTTL, Protocol: uint8(header.UDPProtocolNumber), SrcAddr: src, DstAddr: dst,
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	udp := header.UDP(ip[header.IPv4MinimumSize:])
	udp.Encode(&header.UDPFields{SrcPort: dhcpv4.ServerPort, DstPort: dhcpv4.ClientPort, Length: uint16(len(udp))})
	copy(udp[header.UDPMinimumSize:], body)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, src, dst, udp.Length())
	udp.SetChecksum(^checksum.Checksum(udp, sum))
	d.stack.writeFrame(header.IPv4ProtocolNumber, frame)
}
