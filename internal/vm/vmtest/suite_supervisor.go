//go:build linux

package vmtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// superviseVerb is the argument under which a test's program is a supervisor.
const superviseVerb = "supervise-for-test"

// MaybeSupervise belongs into a TestMain: it turns the program that
// KillingTheSupervisorTakesTheVMMAlong starts into a supervisor.
func MaybeSupervise(newBackend func(cacheDir string) vm.Backend) {
	if len(os.Args) != 4 || os.Args[1] != superviseVerb {
		return
	}
	m, err := newBackend(os.Args[2]).Start(context.Background(), vm.Spec{
		CPUs: 1, MemoryMiB: 256, Disks: []vm.Disk{{Path: os.Args[3], ReadOnly: true, ID: "root"}},
	})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	line, err := bufio.NewReader(m.Agent()).ReadString('\n')
	fmt.Println("vmm", m.PID(), strings.TrimSpace(line), err)
	<-m.Done()
	os.Exit(0)
}

// KillingTheSupervisorTakesTheVMMAlong holds invariant 13: the program of this
// test, which must call MaybeSupervise, starts a machine and is killed.
func (s *Suite) KillingTheSupervisorTakesTheVMMAlong(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, superviseVerb, t.TempDir(), s.Root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscanf(line, "vmm %d ready <nil>", &pid); err != nil {
		t.Fatalf("the supervisor said %q", line)
	}
	vmm, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(vmm)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, vmm)
	if err := cmd.Wait(); err == nil {
		t.Error("the supervisor ended well, want killed")
	}
}

// awaitEnd waits for the process of a pidfd, which becomes readable with its
// end. The bound is there to fail instead of hanging, nothing is timed.
func awaitEnd(t testing.TB, pidfd int) {
	t.Helper()
	const patienceMillis = 60_000
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, patienceMillis)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n != 1 {
			t.Fatalf("the VMM outlived its supervisor: %v", err)
		}
		return
	}
}
