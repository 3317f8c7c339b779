package gateway_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inHost marks the child of alone.
const inHost = "MSB_TEST_IN_HOST_NAMESPACE"

// alone runs a test again in a process whose network namespace is its own, so that the gateway uses its real
// dialer and asks the real kernel, on a host whose addresses and routes the test may change.
func alone(t *testing.T, test func(t *testing.T, h *lonelyHost)) {
	if os.Getenv(inHost) != "" {
		test(t, newLonelyHost(t))
		return
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root, to make a network namespace: run it as root, as CI does")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inHost+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in a network namespace: %v\n%s", err, out)
	}
}

// lonelyHost is a host on whose wire nobody answers. It listens everywhere on port 80 (TCP) and 4433 (UDP).
type lonelyHost struct {
	t        *testing.T
	tun      netlink.Link
	mu       sync.Mutex
	wake     chan struct{}
	left     []netip.Addr     // destinations of the packets on the wire
	reached  []netip.AddrPort // addresses of the host's at which a guest was taken in
	sentinel int
	// answers are what the wire sends back for a packet; nil for nothing. Set before the first one is sent.
	answers func(packet []byte) [][]byte
}

const (
	hostTCP, hostUDP = 80, 4433
	hostMark         = "sentinel"
)

func newLonelyHost(t *testing.T) *lonelyHost {
	t.Helper()
	h := &lonelyHost{t: t, wake: make(chan struct{})}
	wire := h.layWire()
	// Listening while the wire is: what goes on in them ends with the test.
	// As transparent proxies listen: it answers from addresses of other tables than the local one.
	transparent := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { h.must(unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)) })
	}}
	tcp, err := transparent.Listen(t.Context(), "tcp", ":80")
	h.must(err)
	udp, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", ":4433")
	h.must(err)
	var wg sync.WaitGroup
	wg.Go(func() { h.watchWire(wire) })
	wg.Go(func() { h.accept(tcp) })
	wg.Go(func() { h.receive(udp) })
	t.Cleanup(func() { _, _, _ = wire.Close(), tcp.Close(), udp.Close(); wg.Wait() })
	return h
}

func (h *lonelyHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// layWire makes a TUN to which everything goes, and returns its other end.
func (h *lonelyHost) layWire() *os.File {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	h.must(err)
	ifr, err := unix.NewIfreq("wire")
	h.must(err)
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	h.must(unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr))
	lo, err := netlink.LinkByName("lo")
	h.must(err)
	h.must(netlink.LinkSetUp(lo))
	h.tun, err = netlink.LinkByName("wire")
	h.must(err)
	h.must(netlink.LinkSetUp(h.tun))
	for _, a := range []string{"10.77.0.2/24", "45.33.40.2/24", "fd77::2/64", "2606:2800:230::2/64"} {
		h.add(a)
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		h.must(netlink.RouteAdd(&netlink.Route{LinkIndex: h.tun.Attrs().Index, Dst: prefix(all)}))
	}
	return os.NewFile(uintptr(fd), "wire")
}

func prefix(s string) *net.IPNet {
	p := netip.MustParsePrefix(s)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// add gives the host an address.
func (h *lonelyHost) add(a string) {
	h.t.Helper()
	addr := &netlink.Addr{IPNet: prefix(a)}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	h.must(netlink.AddrAdd(h.tun, addr))
	if addr.IP.To4() != nil {
		return
	}
	// The kernel makes the route of an IPv6 address a moment later, in a work queue.
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if routes, err := netlink.RouteGet(addr.IP); err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return
		}
	}
	h.t.Errorf("%s has no route of its own", a)
}

// keep gives the host a local route, as cloud agents do.
func (h *lonelyHost) keep(p string, table int) {
	h.t.Helper()
	lo, err := netlink.LinkByName("lo")
	h.must(err)
	r := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: prefix(p), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: table}
	if table != unix.RT_TABLE_LOCAL {
		r.Src = net.ParseIP("10.77.0.2")
	}
	h.must(netlink.RouteAdd(r))
}

// rule has a table asked about p before all others.
func (h *lonelyHost) rule(p string, table int, change func(*netlink.Rule)) {
	h.t.Helper()
	r := netlink.NewRule()
	r.Dst, r.Table, r.Priority = prefix(p), table, 10
	if change != nil {
		change(r)
	}
	h.must(netlink.RuleAdd(r))
}

// anycast has the host answer for an anycast address.
func (h *lonelyHost) anycast(a string) {
	h.t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	h.must(err)
	h.t.Cleanup(func() { _ = unix.Close(fd) })
	h.must(unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_ANYCAST, &unix.IPv6Mreq{
		Multiaddr: netip.MustParseAddr(a).As16(), Interface: uint32(h.tun.Attrs().Index),
	}))
}

func (h *lonelyHost) note(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	close(h.wake)
	h.wake = make(chan struct{})
}

func (h *lonelyHost) watchWire(wire *os.File) {
	buf := make([]byte, 1<<16)
	for {
		n, err := wire.Read(buf)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		var dst netip.Addr
		switch {
		case err != nil:
			continue
		case n >= 20 && buf[0]>>4 == 4:
			dst = netip.AddrFrom4([4]byte(buf[16:20]))
		case n >= 40 && buf[0]>>4 == 6:
			dst = netip.AddrFrom16([16]byte(buf[24:40]))
		}
		h.note(func() { h.left = append(h.left, dst) })
		h.mu.Lock()
		answers := h.answers
		h.mu.Unlock()
		if answers == nil {
			continue
		}
		for _, b := range answers(buf[:n]) {
			if _, err := wire.Write(b); err != nil {
				h.t.Error(err)
			}
		}
	}
}

func (h *lonelyHost) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		at := c.LocalAddr().(*net.TCPAddr).AddrPort()
		h.note(func() { h.reached = append(h.reached, netip.AddrPortFrom(at.Addr().Unmap(), at.Port())) })
		_ = c.Close()
	}
}

// receive notes datagrams by what they say: the address that they were sent to.
func (h *lonelyHost) receive(c net.PacketConn) {
	buf := make([]byte, 1<<10)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		if string(buf[:n]) == hostMark {
			h.note(func() { h.sentinel++ })
			continue
		}
		h.note(func() { h.reached = append(h.reached, netip.MustParseAddrPort(string(buf[:n]))) })
	}
}

// until waits until a condition holds of what was noted.
func (h *lonelyHost) until(what string, holds func() bool) {
	h.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		h.mu.Lock()
		ok, wake := holds(), h.wake
		h.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-wake:
		case <-deadline:
			h.t.Fatalf("%s: it never came; the wire saw %v, the host was reached at %v", what, h.left, h.reached)
		}
	}
}

func (h *lonelyHost) untilLeft(a netip.Addr) {
	h.t.Helper()
	h.until("a packet to "+a.String()+" on the wire", func() bool { return slices.Contains(h.left, a) })
}

// untouched fails if the host was reached at dst: after a connection and a datagram of its own have come,
// whatever was sent to it before has come too.
func (h *lonelyHost) untouched(dst netip.AddrPort) {
	h.t.Helper()
	own := netip.MustParseAddrPort("10.77.0.2:80")
	var d net.Dialer
	ctx, cancel := context.WithTimeout(h.t.Context(), 60*time.Second)
	defer cancel()
	tcp, err := d.DialContext(ctx, "tcp", own.String())
	h.must(err)
	h.must(tcp.Close())
	udp, err := d.DialContext(ctx, "udp", "10.77.0.2:4433")
	h.must(err)
	h.mu.Lock()
	marks := h.sentinel
	h.mu.Unlock()
	_, err = udp.Write([]byte(hostMark))
	h.must(err)
	h.must(udp.Close())
	h.until("the sentinels", func() bool { return h.sentinel > marks && slices.Contains(h.reached, own) })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reached = slices.DeleteFunc(h.reached, func(a netip.AddrPort) bool { return a == own })
	if slices.Contains(h.reached, dst) {
		h.t.Errorf("the host was reached at %v", dst)
	}
}

// embed4 is the NAT64 form of an address.
func embed4(a string) string {
	b := netip.MustParseAddr("64:ff9b::").As16()
	binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(netip.MustParseAddr(a).AsSlice()))
	return netip.AddrFrom16(b).String()
}
