package gateway_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// openWorld is a gateway on the lonely host that lets everything out but what msb itself keeps in: its dialer
// is the real one. blind gives it a kernel that owns nothing.
func openWorld(h *lonelyHost, blind bool, change func(*gateway.Config)) *gatewaytest.World {
	p := gatewaytest.Policy(h.t, `[egress]
default = "public"
[[egress.allow]]
cidrs = ["10.0.0.0/8", "fd00::/8"]
protocol = "any"
private = true
`)
	return gatewaytest.StartWith(h.t, p, func(c *gateway.Config) {
		c.Dialer = nil
		if blind {
			c.Owns = func(egress.Proto, netip.AddrPort) bool { return false }
		}
		if change != nil {
			change(c)
		}
	})
}

// send has the guest try one address, by TCP to port 80 and by UDP to any other.
func send(t *testing.T, w *gatewaytest.World, dst netip.AddrPort) net.Conn {
	t.Helper()
	if dst.Port() == hostTCP {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		if c, err := w.Guest.DialTCP(ctx, dst); err == nil {
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		return nil
	}
	c, err := w.Guest.DialUDP(dst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Write([]byte(dst.String())); err != nil {
		t.Fatal(err)
	}
	return c
}

// keepAll has the kernel keep addresses in all the ways that no interface shows.
func keepAll(h *lonelyHost) (kept []netip.AddrPort) {
	h.keep("45.33.32.0/24", unix.RT_TABLE_LOCAL)
	h.keep("2606:2800:220::/64", unix.RT_TABLE_LOCAL)
	h.keep("10.99.0.0/16", unix.RT_TABLE_LOCAL) // a private rule covers it
	h.keep("45.33.33.0/24", 100)
	h.rule("45.33.33.0/24", 100, nil)
	h.keep("0.0.0.0/0", 101) // as transparent proxies do
	for _, number := range []int{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		h.rule("45.33.34.0/24", 101, func(r *netlink.Rule) {
			r.IPProto, r.Dport = number, netlink.NewRulePortRange(hostTCP, hostUDP)
		})
	}
	h.anycast("2606:2800:230::")
	for _, a := range []string{"45.33.32.9", "2606:2800:220::9", "10.99.1.1", "45.33.33.9", "45.33.34.9"} {
		kept = append(kept, netip.AddrPortFrom(netip.MustParseAddr(a), hostTCP), netip.AddrPortFrom(netip.MustParseAddr(a), hostUDP))
	}
	// Anycast and directed broadcast, to which Linux serves no TCP.
	return append(kept, netip.MustParseAddrPort("[2606:2800:230::]:4433"),
		netip.MustParseAddrPort("45.33.40.255:4433"), netip.MustParseAddrPort("10.77.0.255:4433"))
}

func TestI5_KernelsOwnAddressesAreRefused(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		kept := keepAll(h)
		w := openWorld(h, false, nil)
		embedded := netip.AddrPortFrom(netip.MustParseAddr(embed4("45.33.32.9")), hostTCP)
		for n, dst := range append(kept, embedded) {
			send(t, w, dst)
			e := w.Audit.Wait(t, audit.FlowOpen, n+1)[n]
			if e.Dst != dst.Addr() || e.Action != "deny" || e.Class != "host" || e.Reason != egress.ReasonHostAddress.String() {
				t.Errorf("%v: the audit line is %+v, want a denial as the host's", dst, e)
			}
			h.untouched(dst)
		}
	})
}

// The attack that the test before refuses: it works where the kernel isn't asked.
func TestI5_KernelsOwnAddressesServeUnasked(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		kept := keepAll(h)
		w := openWorld(h, true, nil)
		for _, dst := range kept {
			send(t, w, dst)
			h.until("the guest at "+dst.String(), func() bool { return slices.Contains(h.reached, dst) })
		}
	})
}

// onOpen does something between the verdict on a flow and its dial.
type onOpen struct {
	audit.Sink
	do atomic.Pointer[func()]
}

func (s *onOpen) Emit(e audit.Event) {
	if do := s.do.Load(); do != nil && e.Kind == audit.FlowOpen && e.Action == "allow" {
		(*do)()
	}
	s.Sink.Emit(e)
}

// gains are the ways in which an address becomes the host's, each with its own.
func gains(h *lonelyHost) map[string]func() {
	h.keep("0.0.0.0/0", 102)
	return map[string]func(){
		"45.33.50.1":       func() { h.add("45.33.50.1/32") },
		"2606:2800:221::1": func() { h.add("2606:2800:221::1/128") },
		"10.50.0.1":        func() { h.add("10.50.0.1/32") },
		"45.33.50.2":       func() { h.keep("45.33.50.2/32", unix.RT_TABLE_LOCAL) },
		"2606:2800:221::2": func() { h.keep("2606:2800:221::2/128", unix.RT_TABLE_LOCAL) },
		"45.33.50.3":       func() { h.rule("45.33.50.3/32", 102, nil) },
	}
}

// The engine has allowed the address when it becomes the host's: the fuse alone is left.
func TestI5_FuseSeesAddressesGainedMeanwhile(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		sink := new(onOpen)
		w := openWorld(h, false, func(c *gateway.Config) { sink.Sink, c.Audit = c.Audit, sink })
		for a, gain := range gains(h) {
			dst := netip.AddrPortFrom(netip.MustParseAddr(a), hostTCP)
			sink.do.Store(&gain)
			if send(t, w, dst) != nil {
				t.Errorf("%v: the guest is connected", dst)
			}
			sink.do.Store(nil)
			h.untouched(dst)
		}
	})
}

func TestI5_GainedAddressesServeTheUnfused(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		sink := new(onOpen)
		w := openWorld(h, true, func(c *gateway.Config) { sink.Sink, c.Audit = c.Audit, sink })
		dst := netip.MustParseAddrPort("45.33.50.2:80")
		gain := gains(h)["45.33.50.2"] // blind only to the kernel: addresses of interfaces are followed
		sink.do.Store(&gain)
		send(t, w, dst)
		h.until("the guest at "+dst.String(), func() bool { return slices.Contains(h.reached, dst) })
	})
}

// pend has the guest dial where nobody answers, until the first packet is on the wire.
func pend(t *testing.T, h *lonelyHost, w *gatewaytest.World, dst netip.AddrPort) (over <-chan net.Conn) {
	t.Helper()
	done := make(chan net.Conn, 1)
	go func() { done <- send(t, w, dst) }()
	h.untilLeft(dst.Addr())
	return done
}

func TestI5_PendingDialsAreJudgedAgain(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		w := openWorld(h, false, nil)
		n := 0
		for a, gain := range gains(h) {
			dst := netip.AddrPortFrom(netip.MustParseAddr(a), hostTCP)
			over := pend(t, h, w, dst)
			gain()
			if <-over != nil {
				t.Errorf("%v: the guest is connected", dst)
			}
			n++
			w.Audit.Wait(t, audit.FlowClose, n) // the dial is over: nothing is sent any more
			h.untouched(dst)
		}
	})
}

// The kernel routes a waiting SYN again: it is delivered to the host when it is sent again.
func TestI5_PendingDialsReachTheUnjudged(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		w := openWorld(h, true, nil)
		dst := netip.MustParseAddrPort("45.33.50.2:80")
		over := pend(t, h, w, dst)
		gains(h)["45.33.50.2"]()
		h.until("the guest at "+dst.String(), func() bool { return slices.Contains(h.reached, dst) })
		<-over
	})
}

func TestI5_LiveDatagramFlowsAreJudgedAgain(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		w := openWorld(h, false, nil)
		n := 0
		for a, gain := range gains(h) {
			dst := netip.AddrPortFrom(netip.MustParseAddr(a), hostUDP)
			send(t, w, dst)
			h.untilLeft(dst.Addr())
			gain()
			n++
			e := w.Audit.Wait(t, audit.FlowClose, n)[n-1]
			if e.Dst != dst.Addr() || e.Message != "its destination became one of the host's own addresses" {
				t.Errorf("%v: the last audit line is %+v", dst, e)
			}
			send(t, w, dst) // another socket: the first one may have been reported an error
			if e := w.Audit.Wait(t, audit.FlowOpen, 2*n)[2*n-1]; e.Action != "deny" || e.Class != "host" {
				t.Errorf("%v: the audit line of the flow after it is %+v", dst, e)
			}
			h.untouched(dst)
		}
	})
}

func TestI5_LiveDatagramFlowsReachTheUnjudged(t *testing.T) {
	alone(t, func(t *testing.T, h *lonelyHost) {
		w := openWorld(h, true, nil)
		dst := netip.MustParseAddrPort("45.33.50.2:4433")
		c := send(t, w, dst)
		h.untilLeft(dst.Addr())
		gains(h)["45.33.50.2"]()
		if _, err := c.Write([]byte(dst.String())); err != nil {
			t.Fatal(err)
		}
		h.until("the guest at "+dst.String(), func() bool { return slices.Contains(h.reached, dst) })
	})
}
