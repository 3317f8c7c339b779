package netstack_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// sumCase is a frame with right checksums, and where they are.
type sumCase struct {
	frame []byte
	sum   int // offset of the transport's checksum; 0: none
	ip    bool
}

const ethLen = 14

// sumCases are one frame of each protocol, from ports of their own.
func sumCases(g *netstacktest.Guest, port uint16) map[string]sumCase {
	src4, src6 := netip.AddrPortFrom(g.Addr4(), port), netip.AddrPortFrom(g.Addr6(), port)
	syn := func(src, dst netip.AddrPort) []byte {
		p := synPacket{src: src.Addr(), dst: dst.Addr(), sport: port, dport: dst.Port(), seq: 1}
		return p.frame(g, header.TCPFlagSyn)
	}
	echo4 := header.ICMPv4(append([]byte{8, 0, 0, 0, byte(port >> 8), byte(port), 0, 1}, "ping"...))
	echo4.SetChecksum(header.ICMPv4Checksum(echo4, 0))
	echo6 := icmp6(src6.Addr(), server6.Addr(), append([]byte{128, 0, 0, 0, byte(port >> 8), byte(port), 0, 1}, "ping"...))
	return map[string]sumCase{
		"tcp":   {syn(src4, server4), ethLen + 20 + 16, true},
		"tcp6":  {syn(src6, server6), ethLen + 40 + 16, false},
		"udp":   {eth(g, ip(src4.Addr(), server4.Addr(), 17, udp(src4, server4, []byte("data")))), ethLen + 20 + 6, true},
		"udp6":  {eth(g, ip(src6.Addr(), server6.Addr(), 17, udp(src6, server6, []byte("data")))), ethLen + 40 + 6, false},
		"icmp":  {eth(g, ip(src4.Addr(), server4.Addr(), 1, echo4)), ethLen + 20 + 2, true},
		"icmp6": {eth(g, ip(src6.Addr(), server6.Addr(), 58, echo6)), ethLen + 40 + 2, false},
	}
}

// counted is a Handler that counts what it is asked about.
func counted() (*netstacktest.Handler, *atomic.Int64) {
	n := new(atomic.Int64)
	return &netstacktest.Handler{
		TCP:  func(context.Context, *netstack.TCPFlow) { n.Add(1) },
		UDP:  func(_ context.Context, f *netstack.UDPFlow) { n.Add(1); f.Drop() },
		Echo: func(context.Context, *netstack.PingFlow) { n.Add(1) },
	}, n
}

func TestI4_WrongChecksumsAreCounted(t *testing.T) {
	t.Parallel()
	h, flows := counted()
	s, g := netstacktest.Start(t, netstack.Config{Handler: h})
	port := uint16(2000)
	right, wrong := int64(0), int64(0)
	for name := range sumCases(g, port) {
		for range 20 {
			port++
			g.Raw(port)
			c := sumCases(g, port)[name]
			g.Inject(c.frame)
			right++
			bad := sumCases(g, port+1)[name]
			at := bad.sum
			if bad.ip && rand.IntN(2) == 0 {
				at = ethLen + 10 // of the IPv4 header
			}
			binary.BigEndian.PutUint16(bad.frame[at:], binary.BigEndian.Uint16(bad.frame[at:])+1+uint16(rand.IntN(0xfff0)))
			port++
			g.Inject(bad.frame)
			wrong++
		}
	}
	eventually(t, "all frames read", func() bool {
		return s.Stats().FramesFromGuest >= right+wrong && flows.Load() >= right-s.Stats().Limited[netstack.LimitPings]
	})
	if st := s.Stats(); st.Drops[frameguard.DropChecksum.Reason()]+st.Drops[frameguard.DropPartial.Reason()] != wrong {
		t.Errorf("%v dropped, want %d for their checksums", st.Drops, wrong)
	}
	if n := flows.Load() + s.Stats().Limited[netstack.LimitPings]; n != right {
		t.Errorf("%d flows, want %d", n, right)
	}
}

// pseudo leaves the sum over the pseudo header in a frame, as a guest does whose card is to do the rest.
func (c sumCase) pseudo() []byte {
	f := append([]byte(nil), c.frame...)
	p := f[ethLen:]
	proto, src, dst, head := p[9], p[12:16], p[16:20], 20
	if !c.ip {
		proto, src, dst, head = p[6], p[8:24], p[24:40], 40
	}
	sum := header.PseudoHeaderChecksum(tcpip.TransportProtocolNumber(proto), tcpip.AddrFromSlice(src), tcpip.AddrFromSlice(dst), uint16(len(p)-head))
	binary.BigEndian.PutUint16(f[c.sum:], sum)
	return f
}

// TestPartialChecksumsAreTakenOnRequest sends partial, right and wrong sums with and without the option.
func TestPartialChecksumsAreTakenOnRequest(t *testing.T) {
	t.Parallel()
	for _, take := range []bool{false, true} {
		h, flows := counted()
		s, g := netstacktest.Start(t, netstack.Config{Handler: h, PartialChecksums: take})
		port, sent := uint16(3000), int64(0)
		for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
			for _, make := range []func(sumCase) []byte{
				sumCase.pseudo,
				func(c sumCase) []byte { return c.frame },
				func(c sumCase) []byte { f := c.pseudo(); f[c.sum+1]++; return f },
			} {
				port++
				g.Raw(port)
				g.Inject(make(sumCases(g, port)[name]))
				sent++
			}
		}
		wantFlows, wantPartial := sent/3, sent/3
		if take {
			wantFlows, wantPartial = 2*sent/3, 0
		}
		eventually(t, "all frames judged", func() bool { return s.Stats().FramesFromGuest >= sent && flows.Load() >= wantFlows })
		st := s.Stats()
		if flows.Load() != wantFlows || st.Drops[frameguard.DropPartial.Reason()] != wantPartial || st.Drops[frameguard.DropChecksum.Reason()] != sent/3 {
			t.Errorf("partial sums taken %v: %d flows, dropped %v; want %d flows, %d partial, %d wrong", take, flows.Load(), st.Drops, wantFlows, wantPartial, sent/3)
		}
	}
}

// TestI4_WrongChecksumsInFragmentsAreCounted: the sum is known once all parts are there.
func TestI4_WrongChecksumsInFragmentsAreCounted(t *testing.T) {
	t.Parallel()
	h, flows := counted()
	s, g := netstacktest.Start(t, netstack.Config{Handler: h})
	send := func(port uint16, change byte) {
		src := netip.AddrPortFrom(g.Addr4(), port)
		whole := udp(src, server4, make([]byte, 64))
		whole[40] += change
		for _, part := range [][2]int{{0, 32}, {32, len(whole)}} {
			p := ip(src.Addr(), server4.Addr(), 17, whole[part[0]:part[1]])
			binary.BigEndian.PutUint16(p[4:], port)
			binary.BigEndian.PutUint16(p[6:], uint16(part[0]/8))
			if part[1] < len(whole) {
				p[6] |= 0x20
			}
			header.IPv4(p).SetChecksum(0)
			header.IPv4(p).SetChecksum(^header.IPv4(p).CalculateChecksum())
			g.Inject(eth(g, p))
		}
	}
	send(4001, 0)
	send(4002, 1)
	send(4003, 0)
	eventually(t, "both right ones", func() bool { return flows.Load() == 2 })
	if st := s.Stats(); st.Drops[frameguard.DropChecksum.Reason()] != 1 {
		t.Errorf("dropped %v, want one for its checksum", st.Drops)
	}
}
