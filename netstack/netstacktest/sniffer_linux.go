package netstacktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/capture"
)

// snifferBuffer holds what comes between two readings, in bytes.
const snifferBuffer = 64 << 20

// Packet is one that left a process or a card of a namespace.
type Packet struct {
	// Device is where, "lo" for the namespace's own traffic.
	Device string
	// Ends are known of TCP, UDP and pings, whose ports are 0; they are zero of anything else.
	Src, Dst netip.AddrPort
	// what is the protocol, or the frame in hexadecimal where it is none of those.
	what string
}

// String is Packet as a test's message has it.
func (p Packet) String() string {
	return fmt.Sprintf("%s on %s from %v to %v", p.what, p.Device, p.Src, p.Dst)
}

// Sniffer sees every packet that is sent in a namespace, on every device, from when it is made. Those of
// ARP and of neighbour discovery, by which the kernel finds its router, are left out.
type Sniffer struct {
	fd      int
	devices map[int]string
}

// Sniff makes one. It needs root.
func (g *TapGuest) Sniff() (*Sniffer, error) {
	s := &Sniffer{fd: -1, devices: map[int]string{}}
	err := g.Do(func() error {
		all, err := net.Interfaces()
		if err != nil {
			return err
		}
		for _, i := range all {
			s.devices[i.Index] = i.Name
		}
		protocol := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(protocol)); err != nil {
			return err
		}
		return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, snifferBuffer)
	})
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("watching a namespace: %w", err)
	}
	return s, nil
}

// Packets are those since the last call. A packet is seen before the call that sent it returns, so
// nothing is awaited here. It fails when some were lost.
func (s *Sniffer) Packets() ([]Packet, error) {
	var seen []Packet
	buf := make([]byte, 1<<16)
	for {
		n, from, err := unix.Recvfrom(s.fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			return seen, err
		}
		at, ok := from.(*unix.SockaddrLinklayer)
		if !ok || at.Pkttype != unix.PACKET_OUTGOING || isNeighbourhood(buf[:n]) {
			continue
		}
		p := Packet{Device: s.devices[at.Ifindex]}
		if h, ok := capture.Decode(buf[:n]); ok {
			p.Src, p.Dst, p.what = h.Src, h.Dst, h.Transport.String()
		} else {
			p.what = fmt.Sprintf("%x", buf[:min(n, 96)])
		}
		seen = append(seen, p)
	}
	lost, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil && lost.Drops > 0 {
		err = fmt.Errorf("%d packets were not seen", lost.Drops)
	}
	return seen, err
}

// Close ends the watch.
func (s *Sniffer) Close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
}

// isNeighbourhood reports ARP, neighbour discovery (RFC 4861) and multicast listener reports (RFC 3810):
// what the host's kernel says on any link.
func isNeighbourhood(frame []byte) bool {
	const etherHead, ip6Head, hopByHop, icmp6 = 14, 40, 0, 58
	if len(frame) < etherHead {
		return false
	}
	switch binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_ARP:
		return true
	case unix.ETH_P_IPV6:
	default:
		return false
	}
	if len(frame) <= etherHead+ip6Head {
		return false
	}
	next, kind := frame[etherHead+6], frame[etherHead+ip6Head]
	const reports, solicitation, redirect = 143, 133, 137
	if next == icmp6 {
		return kind >= solicitation && kind <= redirect
	}
	at := etherHead + ip6Head + 8 // behind the router alert
	return next == hopByHop && len(frame) > at && kind == icmp6 && frame[at] == reports
}
