package gateway_test

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway"
)

// from4 makes a packet of IPv4 from a to b.
func from4(a, b netip.Addr, proto byte, payload []byte) []byte {
	p := make([]byte, 20, 20+len(payload))
	p[0], p[8], p[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(p[2:], uint16(20+len(payload)))
	copy(p[12:], a.AsSlice())
	copy(p[16:], b.AsSlice())
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(p[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(p[10:], ^uint16(sum+sum>>16))
	return append(p, payload...)
}

// udp4 makes a datagram without a checksum, which IPv4 lets be.
func udp4(a, b netip.AddrPort, text string) []byte {
	u := make([]byte, 8, 8+len(text))
	binary.BigEndian.PutUint16(u, a.Port())
	binary.BigEndian.PutUint16(u[2:], b.Port())
	binary.BigEndian.PutUint16(u[4:], uint16(8+len(text)))
	return from4(a.Addr(), b.Addr(), unix.IPPROTO_UDP, append(u, text...))
}

// answers returns what the wire sends back for one packet: replies from other sources first, then the destination's, if
// it has one.
func answers(p []byte, other netip.Addr) (out [][]byte) {
	if len(p) < 28 || p[0] != 0x45 {
		return nil
	}
	src, dst := netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	switch p[9] {
	case unix.IPPROTO_UDP:
		from, to := binary.BigEndian.Uint16(p[20:]), binary.BigEndian.Uint16(p[22:])
		back := netip.AddrPortFrom(src, from)
		return [][]byte{
			udp4(netip.AddrPortFrom(other, to), back, "from another source"),
			udp4(netip.AddrPortFrom(dst, to+1), back, "from another port"),
			udp4(netip.AddrPortFrom(dst, to), back, "honest"),
		}
	case unix.IPPROTO_ICMP:
		msg, err := icmp.ParseMessage(1, p[20:])
		if err != nil || msg.Type != ipv4.ICMPTypeEcho {
			return nil
		}
		echo, _ := msg.Body.(*icmp.Echo)
		reply := func(from netip.Addr, seq int) []byte {
			m := icmp.Message{Type: ipv4.ICMPTypeEchoReply, Body: &icmp.Echo{ID: echo.ID, Seq: seq, Data: echo.Data}}
			b, _ := m.Marshal(nil) // of plain bytes
			return from4(from, src, unix.IPPROTO_ICMP, b)
		}
		switch string(echo.Data) {
		case "honest":
			return [][]byte{reply(dst, echo.Seq)}
		case "from another source":
			return [][]byte{reply(other, echo.Seq)}
		case "to another request":
			return [][]byte{reply(dst, echo.Seq+1)}
		}
	}
	return nil
}

// TestI5_OtherSourcesAnswerForNobody: an attacker on the path outside sees what the guest sends, and answers in place of
// the host that the policy allows.
func TestI5_OtherSourcesAnswerForNobody(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		h.must(os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0o600))
		h.note(func() { h.answers = func(p []byte) [][]byte { return answers(p, otherAddr) } })
		w := openWorld(h, false, func(c *gateway.Config) { c.Pinger = nil })
		c := send(t, w, netip.AddrPortFrom(siteAddr, hostUDP))
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		buf := make([]byte, 64)
		if n, err := c.Read(buf); err != nil || string(buf[:n]) != "honest" {
			t.Errorf("the first datagram that comes back is %q, %v", buf[:n], err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		if err := w.Guest.Ping(ctx, siteAddr, []byte("honest")); err != nil {
			t.Errorf("an honest answer: %v", err)
		}
		var pings sync.WaitGroup
		for _, which := range []string{"from another source", "to another request"} {
			pings.Go(func() {
				if w.Guest.Ping(ctx, siteAddr, []byte(which)) == nil {
					t.Errorf("the guest got a reply %s", which)
				}
			})
		}
		for _, e := range w.Audit.Wait(t, audit.FlowClose, 3)[1:] {
			if e.Message == "" {
				t.Errorf("a ping without an answer of its destination ended without an error: %+v", e)
			}
		}
		cancel()
		pings.Wait()
	})
}
