package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// farPorts are on an internet whose wire takes 1,500 bytes, behind a route of 1,400 to the second pair.
var farPorts = map[string]int{ // address: MTU of the way there
	"45.33.32.156:4433": 1500, "[2606:2800:21f::1]:4433": 1500,
	"45.33.32.157:4433": 1400, "[2606:2800:21f::2]:4433": 1400,
}

// islandDialer opens the gateway's sockets on an island's host.
type islandDialer struct{ host *netstacktest.TapGuest }

func (d islandDialer) DialContext(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = d.host.Do(func() (err error) { c, err = new(net.Dialer).DialContext(ctx, network, addr); return err })
	return c, err
}

// startWide makes a kernel's guest at MTU 65520 whose gateway is on an island's host.
func startWide(t *testing.T) *netstacktest.TapGuest {
	t.Helper()
	island, err := netstacktest.OpenIsland()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(island.Close)
	for addr := range farPorts {
		tellSizes(t, island.Internet, addr)
	}
	if err := island.Host.Do(narrowRoutes); err != nil {
		t.Fatal(err)
	}
	_, link := gatewaytest.Open(t, gatewaytest.Policy(t, `[[egress.allow]]
cidrs = ["45.33.32.0/24", "2606:2800:21f::/64"]
protocol = "udp"
ports = [4433]
`), func(c *gateway.Config) {
		c.Dialer, c.Link.MTU = islandDialer{island.Host}, netstack.LargeMTU
	})
	full, err := netstack.New(netstack.Config{GuestMAC: netstacktest.MAC, MTU: netstack.LargeMTU, Handler: &netstacktest.Handler{}})
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	return netstacktest.NewTapGuest(t, link, full.Config())
}

// tellSizes answers each datagram to addr with its size.
func tellSizes(t *testing.T, internet *netstacktest.TapGuest, addr string) {
	t.Helper()
	var listener net.PacketConn
	// Every address is the internet's, but IPv6 binds to those of a card only.
	lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_FREEBIND, 1)
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1)
		})
	}}
	if err := internet.Do(func() (err error) { listener, err = lc.ListenPacket(t.Context(), "udp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			n, from, err := listener.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = listener.WriteTo(fmt.Append(nil, n), from)
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
}

func narrowRoutes() error {
	uplink, err := netlink.LinkByName(netstacktest.Uplink)
	if err != nil {
		return err
	}
	for dst, gw := range map[string]string{"45.33.32.157/32": "10.77.0.1", "2606:2800:21f::2/128": "fd77::1"} {
		to, err := netlink.ParseIPNet(dst)
		if err != nil {
			return err
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Attrs().Index, Dst: to, Gw: net.ParseIP(gw), MTU: 1400}); err != nil {
			return err
		}
	}
	return nil
}

// dialFar opens a connected socket in the guest with a mode of path-MTU discovery; the modes have the same
// numbers in both families.
func dialFar(t *testing.T, g *netstacktest.TapGuest, addr string, mode int) *net.UDPConn {
	t.Helper()
	var c net.Conn
	if err := g.Do(func() (err error) { c, err = net.Dial("udp", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	u := c.(*net.UDPConn)
	raw, err := u.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if strings.HasPrefix(addr, "[") {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, option, mode) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return u
}

// sendProbe sends size bytes; false means that they were too many, by any of the ways that the kernel says so. A
// datagram may be lost, on a busy machine above all: what isn't answered is sent again.
func sendProbe(t *testing.T, c *net.UDPConn, size int) bool {
	t.Helper()
	tooLarge := 0 // an error may be about the probe before
	for range 30 {
		_, err := c.Write(make([]byte, size))
		if err == nil {
			err = awaitSize(c, size)
		}
		switch {
		case err == nil:
			return true
		case errors.Is(err, syscall.EMSGSIZE):
			if tooLarge++; tooLarge == 3 {
				return false
			}
		case !errors.Is(err, os.ErrDeadlineExceeded):
			t.Fatalf("%d bytes: %v", size, err)
		}
	}
	t.Fatalf("%d bytes: no answer and no error", size)
	return false
}

// awaitSize reads until the answer to size bytes comes, past late answers to what was sent before.
func awaitSize(c *net.UDPConn, size int) error {
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
	var answer [16]byte
	for {
		n, err := c.Read(answer[:])
		if err != nil || string(answer[:n]) == fmt.Sprint(size) {
			return err
		}
	}
}

func headers(addr string) int {
	if netip.MustParseAddrPort(addr).Addr().Is6() {
		return 48
	}
	return 28
}

// TestGuestsFindTheHostsPathMTU looks for the largest datagram that goes through in one piece, as QUIC does: from a
// link of 65,520 bytes it is what the host's path takes.
func TestGuestsFindTheHostsPathMTU(t *testing.T) {
	g := startWide(t)
	for addr, mtu := range farPorts {
		c := dialFar(t, g, addr, unix.IP_PMTUDISC_PROBE)
		good, bad := 1200, 9000
		for good+1 < bad {
			if middle := (good + bad) / 2; sendProbe(t, c, middle) {
				good = middle
			} else {
				bad = middle
			}
		}
		if want := mtu - headers(addr); good != want {
			t.Errorf("%s: the search ends at %d bytes, want %d", addr, good, want)
		}
	}
}

// TestLargeDatagramsArrive sends datagrams that no path takes in one piece, as programs do that leave it to
// the kernel: after the first was answered, the guest fragments them, and each arrives whole.
func TestLargeDatagramsArrive(t *testing.T) {
	g := startWide(t)
	for addr := range farPorts {
		for mode, name := range map[int]string{unix.IP_PMTUDISC_WANT: "left to the kernel", unix.IP_PMTUDISC_DONT: "never in one piece"} {
			c := dialFar(t, g, addr, mode)
			for _, size := range []int{1, 1200, 1473, 9000, 60_000, 1473, 1} {
				if !sendProbe(t, c, size) {
					t.Errorf("%s, %s: %d bytes never arrive", addr, name, size)
				}
			}
		}
	}
}
