//go:build linux

package netstacktest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/netstack"
)

// tapBuffer takes one frame and its prefix.
const tapBuffer = netstack.MaxFrame + 64

// TapGuest is a guest made of Linux's own network code: a network namespace
// whose only device is a TAP. Its frames go over the stream framing as the
// sandboxes' cards send them: checksummed and segmented by the guest. With
// Config.PartialChecksums the TAP offers CSUM, TSO4 and TSO6, and they come as
// libkrun's do with these features: segments of up to 64 KiB, with the sum of
// the pseudo header for a checksum, and nothing that says so.
type TapGuest struct {
	t   testing.TB
	ns  netns.NsHandle
	tap *os.File
	mac net.HardwareAddr
	wg  sync.WaitGroup
}

// NewTapGuest makes a namespace with a TAP that has the addresses which cfg
// leases, and carries its frames over conn, the guest's end of a stream link. It
// needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN) and /dev/net/tun.
func NewTapGuest(t testing.TB, conn net.Conn, cfg netstack.Config) *TapGuest {
	t.Helper()
	g, err := OpenTapGuest(cfg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	g.t = t
	g.Bridge(conn)
	t.Cleanup(func() { _ = conn.Close(); g.Close() })
	return g
}

// OpenTapGuest is NewTapGuest without the link: the caller bridges or attaches
// the TAP itself, and closes.
func OpenTapGuest(cfg netstack.Config) (*TapGuest, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a TAP guest needs root, to make a network namespace and a TAP: run this as root, as CI does")
	}
	mac := cfg.GuestMAC
	if mac == nil {
		mac = MAC
	}
	return open(func(g *TapGuest) error { g.mac = mac; return g.setUp(cfg) })
}

// OpenNamespace makes a namespace without any device of ours.
func OpenNamespace() (*TapGuest, error) { return open(func(*TapGuest) error { return nil }) }

func open(inside func(*TapGuest) error) (*TapGuest, error) {
	g := &TapGuest{ns: netns.None()}
	made := make(chan error, 1)
	go func() { // on a thread of its own, that ends with the goroutine
		runtime.LockOSThread()
		ns, err := netns.New()
		if err == nil {
			g.ns = ns
			err = inside(g)
		}
		made <- err
	}()
	if err := <-made; err != nil {
		g.Close()
		return nil, fmt.Errorf("making a TAP guest: %w", err)
	}
	return g, nil
}

// setUp runs inside the namespace.
func (g *TapGuest) setUp(cfg netstack.Config) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("/dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq("eth0")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("TUNSETIFF: %w", err)
	}
	if cfg.PartialChecksums {
		if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("TUNSETOFFLOAD: %w", err)
		}
	}
	g.tap = os.NewFile(uintptr(fd), "tap")
	return configureTap(g.mac, cfg)
}

func configureTap(mac net.HardwareAddr, cfg netstack.Config) error {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	route := func(gw []byte) error { return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw}) }
	for _, step := range []func() error{
		func() error { return netlink.LinkSetUp(lo) },
		func() error { return netlink.LinkSetHardwareAddr(link, mac) },
		func() error { return netlink.LinkSetMTU(link, cfg.MTU) },
		func() error { return netlink.LinkSetTxQLen(link, 1000) },
		func() error { return netlink.AddrAdd(link, address4(cfg)) },
		func() error { return netlink.AddrAdd(link, address6(cfg)) },
		func() error { return netlink.LinkSetUp(link) },
		func() error { return route(cfg.Gateway4.AsSlice()) },
		func() error { return route(cfg.Gateway6.AsSlice()) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func address4(cfg netstack.Config) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: cfg.Guest4.AsSlice(), Mask: net.CIDRMask(cfg.Prefix4, 32)}}
}

func address6(cfg netstack.Config) *netlink.Addr {
	return &netlink.Addr{
		IPNet: &net.IPNet{IP: cfg.Guest6.AsSlice(), Mask: net.CIDRMask(cfg.Prefix6, 128)},
		Flags: unix.IFA_F_NODAD,
	}
}

// Bridge carries frames between TAP and conn until one of them ends.
func (g *TapGuest) Bridge(conn net.Conn) {
	g.wg.Add(1)
	go func() { defer g.wg.Done(); BridgeTap(g.tap, conn) }()
}

// BridgeTap carries frames between a TAP and the guest's end of a stream link,
// until both directions have ended.
func BridgeTap(tap *os.File, conn net.Conn) {
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); toLink(tap, conn) }()
	go func() { defer wg.Done(); fromLink(tap, conn) }()
	wg.Wait()
}

func toLink(tap *os.File, conn net.Conn) {
	const prefix = 4
	buf := make([]byte, tapBuffer)
	for {
		n, err := tap.Read(buf[prefix:])
		if err != nil {
			return
		}
		binary.BigEndian.PutUint32(buf, uint32(n))
		if _, err := conn.Write(buf[:prefix+n]); err != nil {
			return
		}
	}
}

func fromLink(tap *os.File, conn net.Conn) {
	link := netstack.NewStreamLink(conn)
	for {
		frame, err := link.ReadFrame()
		if err != nil {
			return
		}
		// A full queue loses the frame, as a NIC does.
		if _, err := tap.Write(frame); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// Command is a command that will run inside the namespace (through nsenter, of
// util-linux).
func (g *TapGuest) Command(name string, args ...string) *exec.Cmd {
	argv := append([]string{"--net=/proc/self/fd/3", "--", name}, args...)
	cmd := exec.Command("nsenter", argv...)
	cmd.ExtraFiles = []*os.File{os.NewFile(uintptr(dup(int(g.ns))), "netns")}
	return cmd
}

func dup(fd int) int {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return n
}

// Do runs f on a thread inside the namespace. Sockets that f makes stay there;
// goroutines that it starts do not.
func (g *TapGuest) Do(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(g.ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// Path is a path of the namespace, for programs that take one.
func (g *TapGuest) Path() string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(g.ns))
}

// Tap is the TAP's descriptor: one frame for each read and write.
func (g *TapGuest) Tap() io.ReadWriteCloser { return g.tap }

// Close removes TAP and namespace.
func (g *TapGuest) Close() {
	if g.tap != nil {
		_ = g.tap.Close()
	}
	g.wg.Wait()
	if g.ns.IsOpen() {
		_ = g.ns.Close()
	}
}
