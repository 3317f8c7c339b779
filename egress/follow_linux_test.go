package egress

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace marks the child of the test below.
const inNamespace = "MSB_TEST_IN_NAMESPACE"

// This test needs a network namespace of its own to add addresses in: it runs
// itself again in one (as root, or in a user namespace where those are allowed).
func TestI5_NetlinkAnnouncesNewAddresses(t *testing.T) {
	if os.Getenv(inNamespace) != "" {
		followInNamespace(t)
		return
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("in a network namespace: %v\n%s", err, out)
	}
}

func followInNamespace(t *testing.T) {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	c := NewClassifier()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	h := realHostAddrs()
	h.tick = func(context.Context, time.Duration) <-chan time.Time { return nil } // netlink alone
	reads := make(chan struct{}, 1)
	h.read = func() ([]netip.Addr, error) {
		defer func() {
			select {
			case reads <- struct{}{}:
			default:
			}
		}()
		return readInterfaces()
	}
	done, changed := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(done)
		c.follow(ctx, h, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		}, func(err error) { t.Error(err) })
	}()
	<-reads // the first one: the subscription stands
	addr := &netlink.Addr{IPNet: netlink.NewIPNet([]byte{93, 184, 215, 99})}
	want := func(class Class) {
		t.Helper()
		for c.class(netip.MustParseAddr("93.184.215.99")) != class {
			if ctx.Err() != nil {
				t.Fatalf("the address is still %v, want %v", c.class(netip.MustParseAddr("93.184.215.99")), class)
			}
			runtime.Gosched()
		}
	}
	want(ClassPublic)
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	want(ClassHost)
	if err := netlink.AddrDel(lo, addr); err != nil {
		t.Fatal(err)
	}
	want(ClassPublic)
	overrun(ctx, t)
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	want(ClassHost)
	announces(ctx, t, changed, lo)
	cancel()
	<-done
}

// overrun changes routes until the kernel has dropped an announcement, which ends no subscription.
func overrun(ctx context.Context, t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: netlink.NewIPNet([]byte{45, 33, 32, 1})}
	for !dropped(t) {
		if ctx.Err() != nil {
			t.Fatal("the kernel's queue never overran")
		}
		for range 500 {
			if err := errors.Join(netlink.RouteAdd(route), netlink.RouteDel(route)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// dropped reports whether a netlink socket of this namespace lost messages.
func dropped(t *testing.T) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/net/netlink")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		if f := strings.Fields(line); len(f) == 10 && f[8] != "0" && f[8] != "Drops" {
			return true
		}
	}
	return false
}

// announces changes what leads to the host without an address: routes and rules of both families.
func announces(ctx context.Context, t *testing.T, changed <-chan struct{}, lo netlink.Link) {
	t.Helper()
	for name, change := range map[string]func() error{
		"local route":      func() error { return netlink.RouteAdd(localRoute(lo, "45.33.33.0/24")) },
		"local IPv6 route": func() error { return netlink.RouteAdd(localRoute(lo, "2606:2800:220::/64")) },
		"rule":             func() error { return netlink.RuleAdd(ruleTo("45.33.34.0/24")) },
		"IPv6 rule":        func() error { return netlink.RuleAdd(ruleTo("2606:2800:221::/64")) },
	} {
		for quiet := false; !quiet; { // what came before
			select {
			case <-changed:
			case <-time.After(10 * settle):
				quiet = true
			}
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("a %s is not announced", name)
		}
	}
}

func localRoute(lo netlink.Link, dst string) *netlink.Route {
	to, _ := netlink.ParseIPNet(dst)
	return &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST, Table: unix.RT_TABLE_LOCAL}
}

func ruleTo(dst string) *netlink.Rule {
	r := netlink.NewRule()
	r.Dst, _ = netlink.ParseIPNet(dst)
	r.Table, r.Priority = 100, 10
	return r
}
