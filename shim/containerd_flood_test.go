//go:build containerdtest

package shim_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// flood is a pod's attack on its shim: hundreds of execs at once, of which the bound's number runs and the others are refused by
// name, and a line of 40 MB to its log. Both take little of the shim's memory, and the container goes on.
func flood(t *testing.T, r cri.RuntimeServiceClient, shim int, container, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	exec := func(args ...string) (*cri.ExecSyncResponse, error) {
		return r.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: container, Timeout: int64(patience.Seconds()), Cmd: args})
	}
	const most = 64 << 20
	before := peak(t, shim)
	var all sync.WaitGroup
	var mu sync.Mutex
	served, refused := 0, 0
	for range 200 {
		all.Go(func() {
			e, err := exec("/bin/sleep", "5")
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && e.ExitCode == 0:
				served++
			case err != nil && strings.Contains(err.Error(), "processes of Exec are there already"):
				refused++
			default:
				t.Errorf("an exec of many: %v, %v", e, err)
			}
		})
	}
	all.Wait()
	if served == 0 || refused == 0 {
		t.Errorf("%d execs were served and %d refused", served, refused)
	}
	const line = 40_000_000
	if e, err := exec("/bin/sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x > /proc/1/fd/1; echo after", line)); err != nil || string(e.Stdout) != "after\n" {
		t.Errorf("after %d execs: %v, %v", served, e, err)
	}
	waitFor(t, "the line to be logged", func() bool { info, err := os.Stat(log); return err == nil && info.Size() > line })
	if after := peak(t, shim); after-before > most {
		t.Errorf("the shim had %d MiB at most, and %d before", after>>20, before>>20)
	}
	t.Logf("%d execs served, %d refused; the shim's memory: %d MiB, then %d", served, refused, before>>20, peak(t, shim)>>20)
}

// peak is the most memory that a process had, in bytes.
func peak(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kB int64
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kB); err == nil {
			return kB << 10
		}
	}
	t.Fatalf("no VmHWM in %s", b)
	return 0
}
