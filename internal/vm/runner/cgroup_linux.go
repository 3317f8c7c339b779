package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// errNoCgroup means that there is no control group of version 2 below which this process may make one with bounds.
var errNoCgroup = errors.New("no control group of version 2 with memory and pids is delegated to this user")

const (
	cgroupMount = "/sys/fs/cgroup"
	cgroupSelf  = "/proc/self/cgroup"
	// cgroupPrefix begins the names of VMMs' groups. A group that is empty and older than cgroupAge was left by a
	// killed supervisor.
	cgroupPrefix = "msb-vmm-"
	cgroupAge    = time.Minute
)

const (
	// vmmMemory is what a VMM may take beside its guest's memory: QEMU's translated code alone takes up to 1 GiB.
	vmmMemory = 1536 << 20
	// vmmThreads is what a VMM may start beside its virtual CPUs: QEMU's disks take up to 64, run-times some.
	vmmThreads = 128
)

// limits bound a VMM; the zero value bounds nothing.
type limits struct {
	memory  int64 // bytes
	threads int
}

func (l limits) String() string {
	return fmt.Sprintf("a control group: at most %d MiB and %d threads", l.memory>>20, l.threads)
}

// cgroup is a VMM's control group. The kernel starts the VMM in it: not one instruction runs outside.
type cgroup struct{ dir *os.File }

// spawnBounded starts the runner in a group of its own if it can, and else without.
func spawnBounded(p Plan, program *os.File, files []*os.File, stderr *os.File, l limits) (*process, *os.File, error) {
	group, err := newCgroup(cgroupSelf, cgroupMount, l)
	if err == nil {
		proc, status, err := spawn(p, program, files, stderr, group)
		if err == nil {
			return proc, status, nil
		}
		group.close() // this process may make groups, but not put a process there
	}
	return spawn(p, program, files, stderr, nil)
}

// newCgroup makes a group below the nearest ancestor of this process's own whose groups have both controllers. It
// switches no controller on: that is for whoever manages the groups to decide. The search begins at its own
// group, where it fails unless that is the root: the kernel lets no other group hold both processes and groups
// with controllers. Without limits it makes none: the one that it found could be outside of the limits of its caller's.
func newCgroup(self, mount string, l limits) (*cgroup, error) {
	if l == (limits{}) {
		return nil, errNoCgroup
	}
	own, err := ownCgroup(self)
	if err != nil {
		return nil, err
	}
	reason := errNoCgroup
	for at := own; ; at = filepath.Dir(at) {
		g, err := makeCgroup(filepath.Join(mount, at), l)
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, errNoCgroup) {
			reason = fmt.Errorf("%w: %w", errNoCgroup, err)
		}
		if at == "/" {
			return nil, reason
		}
	}
}

// ownCgroup reads a process's group in version 2's hierarchy from its /proc/PID/cgroup (cgroups(7)).
func ownCgroup(self string) (string, error) {
	text, err := os.ReadFile(self)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	for line := range strings.Lines(string(text)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		// Outside of its cgroup namespace it has a path that begins with /.., or with no / at all.
		if ok && filepath.IsAbs(path) && filepath.Clean(path) == path {
			return path, nil
		}
	}
	return "", errNoCgroup
}

func makeCgroup(parent string, l limits) (*cgroup, error) {
	controllers, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if err != nil {
		return nil, errNoCgroup
	}
	for _, c := range []string{"memory", "pids"} {
		if !slices.Contains(strings.Fields(string(controllers)), c) {
			return nil, errNoCgroup
		}
	}
	sweepCgroups(parent)
	path, err := os.MkdirTemp(parent, cgroupPrefix)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]int64{"memory.max": l.memory, "pids.max": int64(l.threads)} {
		err = errors.Join(err, os.WriteFile(filepath.Join(path, name), []byte(strconv.FormatInt(value, 10)), 0))
	}
	// Otherwise memory over the bound goes to the host's swap. A kernel without swap has no such file.
	_ = os.WriteFile(filepath.Join(path, "memory.swap.max"), []byte(strconv.FormatInt(l.memory, 10)), 0)
	if err == nil {
		var dir *os.File
		if dir, err = os.Open(path); err == nil {
			return &cgroup{dir}, nil
		}
	}
	return nil, errors.Join(err, os.Remove(path))
}

// sweepCgroups removes groups that killed supervisors left. The kernel removes none that holds a process.
func sweepCgroups(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*")) // the pattern is sound
	for _, path := range left {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > cgroupAge {
			_ = os.Remove(path) // busy: it is in use
		}
	}
}

// close removes the group, whose process has been reaped or was never started.
func (g *cgroup) close() {
	if g == nil {
		return
	}
	_ = os.Remove(g.dir.Name()) // at worst the next start's sweep does it
	_ = g.dir.Close()
}
