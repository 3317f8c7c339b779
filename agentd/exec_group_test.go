//go:build linux

package agentd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentclient"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// groupedMachine has control groups.
type groupedMachine struct {
	*fakeMachine
	all *workload.Cgroups
}

func (g *groupedMachine) Cgroup() *workload.Cgroup {
	group, _ := g.all.New()
	return group
}

// TestExecsRunInAGroupOfTheirOwn, which is removed behind them, and whose processes all end with the timeout: also those that
// left the session.
func TestExecsRunInAGroupOfTheirOwn(t *testing.T) {
	mount := t.TempDir()
	if err := unix.Mount("none", mount, "cgroup2", 0, ""); err != nil {
		t.Skip("no control groups here: ", err)
	}
	top := filepath.Join(mount, fmt.Sprintf("msb-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
	if err := os.Mkdir(top, 0o755); err != nil {
		_ = unix.Unmount(mount, unix.MNT_DETACH)
		t.Skip("no control groups here: ", err)
	}
	t.Cleanup(func() {
		_ = os.Remove(filepath.Join(top, "msb"))
		if err := os.Remove(top); err != nil {
			t.Error("something is left: ", err)
		}
		_ = unix.Unmount(mount, unix.MNT_DETACH)
	})
	all, err := workload.NewCgroups(top, workload.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s := dial(t, agentclient.Options{}, func(s *server) {
		s.ops = &groupedMachine{s.ops.(*fakeMachine), all}
		s.killGrace = 10 * time.Millisecond
	})
	for range 2 {
		if got := s.run(t, script("cat /proc/self/cgroup")); !strings.Contains(got.out, filepath.Base(top)+"/msb/exec-") {
			t.Errorf("got %+v", got)
		}
	}
	o := script("setsid sleep 1000 > /dev/null 2>&1 & exec sleep 1000")
	o.Timeout = 200 * time.Millisecond
	if got := s.run(t, o); !got.TimedOut {
		t.Errorf("got %+v", got)
	}
	eventually(t, "no group is left", func() bool { // a killed process is in it for a moment
		if group, err := all.New(); err == nil { // which removes those before it
			group.Close()
		}
		left, _ := filepath.Glob(filepath.Join(top, "msb/exec-*"))
		return len(left) == 0
	})
}
