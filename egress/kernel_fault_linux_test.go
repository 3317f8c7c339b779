package egress

import (
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// TestI5_SilentKernelsKeepEverything: a process without a free descriptor can't ask the kernel for a route, so it may dial
// nothing. While it has one, it may dial the same addresses.
func TestI5_SilentKernelsKeepEverything(t *testing.T) {
	const inChild = "MSB_TEST_NO_DESCRIPTORS"
	if os.Getenv(inChild) == "" {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), inChild+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	for _, address := range []string{"93.184.215.14:443", "[2606:2800:21f::1]:443", "[64:ff9b::5db8:d70e]:443"} {
		dst := netip.MustParseAddrPort(address)
		if owns, err := KernelOwns(TCP, dst); owns || err != nil {
			t.Errorf("%s: %v, %v", dst, owns, err)
		}
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		owns, err := KernelOwns(TCP, dst)
		if restored := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); restored != nil {
			t.Fatal(restored)
		}
		if !owns || err == nil {
			t.Errorf("%s may be dialled though the kernel wasn't asked: %v, %v", dst, owns, err)
		}
	}
}
