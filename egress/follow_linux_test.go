package egress

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	h := realHostAddrs()
	h.tick = func(context.Context, time.Duration) <-chan time.Time { return nil } // netlink alone
	reads := make(chan struct{}, 16)
	h.read = func() ([]netip.Addr, error) {
		defer func() { reads <- struct{}{} }()
		return readInterfaces()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.follow(ctx, h, func(err error) { t.Error(err) })
	}()
	<-reads // the first one: the subscription stands
	addr := &netlink.Addr{IPNet: netlink.NewIPNet([]byte{93, 184, 215, 99})}
	want := func(class Class) {
		t.Helper()
		for c.Class(netip.MustParseAddr("93.184.215.99")) != class {
			if ctx.Err() != nil {
				t.Fatalf("the address is still %v, want %v", c.Class(netip.MustParseAddr("93.184.215.99")), class)
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
	cancel()
	<-done
}
