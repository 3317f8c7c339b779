package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// controlGroup is the node's control group of a machine: what the kubelet, or ctr, names for the pod's first container. The
// shim is in it while the machine lives, and with it the supervisor and the VMM that it starts, so that a pod's limits,
// accounts and eviction are of all that the pod costs the node. It sets no limit itself; the kubelet sets the pod's.
type controlGroup string

// groupOf is the control group that a spec names, "" for none: a path, or systemd's SLICE:PREFIX:NAME.
func groupOf(spec *specs.Spec) (controlGroup, error) {
	if spec.Linux == nil || spec.Linux.CgroupsPath == "" {
		return "", nil
	}
	name := spec.Linux.CgroupsPath
	if strings.Contains(name, ":") {
		parts := strings.Split(name, ":")
		if len(parts) != 3 || strings.Contains(name, "/") || !strings.HasSuffix(parts[0], ".slice") {
			return "", refused(fmt.Sprintf("the control group %q is none of systemd's: want SLICE:PREFIX:NAME", name))
		}
		name = path.Join(slicePath(parts[0]), parts[1]+"-"+parts[2]+".scope")
	}
	name = path.Clean("/" + name)
	if name == "/" {
		return "", refused(fmt.Sprintf("the control group %q is the node's own", spec.Linux.CgroupsPath))
	}
	return controlGroup(name), nil
}

// slicePath is where systemd has a slice: below those that its name begins with.
func slicePath(slice string) (at string) {
	name, whole := strings.TrimSuffix(slice, ".slice"), ""
	if name == "-" {
		return ""
	}
	for part := range strings.SplitSeq(name, "-") {
		whole = strings.TrimPrefix(whole+"-"+part, "-")
		at = path.Join(at, whole+".slice")
	}
	return at
}

// hierarchy is a mounted tree of control groups, and this process's place in it.
type hierarchy struct{ root, own string }

// controllers are those of version 1 whose accounts and limits are of interest.
var controllers = []string{"memory", "cpu", "cpuacct", "pids"}

// hierarchies are the one of version 2, or several of version 1.
func hierarchies() (all []hierarchy, err error) {
	const root = "/sys/fs/cgroup"
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(b)) { // ID:CONTROLLERS:PATH
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for name := range strings.SplitSeq(f[1], ",") {
				own[name] = f[2]
			}
		}
	}
	if _, err := os.Stat(path.Join(root, "cgroup.controllers")); err == nil {
		return []hierarchy{{root, own[""]}}, nil
	}
	for _, name := range controllers {
		if at, ok := own[name]; ok {
			all = append(all, hierarchy{path.Join(root, name), at})
		}
	}
	return all, nil
}

// move moves this process to a group of the hierarchy.
func (h hierarchy) move(group string) error {
	return os.WriteFile(path.Join(h.root, group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}

// enter moves this process to the group, which it makes. leave moves it back and removes the group, which has to be empty
// by then.
func (g controlGroup) enter() (leave func() error, err error) {
	if g == "" {
		return func() error { return nil }, nil
	}
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	leave = func() (err error) {
		for _, h := range all {
			err = errors.Join(err, h.move(h.own))
		}
		return errors.Join(err, g.remove())
	}
	for _, h := range all {
		if err = os.MkdirAll(path.Join(h.root, string(g)), 0o755); err == nil { //nolint:gosec // G301: as the kernel's own
			err = h.move(string(g))
		}
		if err != nil {
			return nil, errors.Join(err, leave())
		}
	}
	return leave, nil
}

// Processes that were killed leave a group once the kernel has freed what they held.
const (
	emptyWait = 10 * time.Second
	emptyTick = 10 * time.Millisecond
)

// remove removes the group, once its last process has gone.
func (g controlGroup) remove() error {
	if g == "" {
		return nil
	}
	all, err := hierarchies()
	if err != nil {
		return err
	}
	tick, limit := time.NewTicker(emptyTick), time.NewTimer(emptyWait)
	defer tick.Stop()
	defer limit.Stop()
	for {
		var busy error
		for _, h := range all {
			if err := os.Remove(path.Join(h.root, string(g))); !errors.Is(err, fs.ErrNotExist) {
				busy = errors.Join(busy, err)
			}
		}
		if !errors.Is(busy, syscall.EBUSY) {
			return busy
		}
		select {
		case <-tick.C:
		case <-limit.C:
			return busy
		}
	}
}

// pids are those of the group's processes.
func (g controlGroup) pids() (all []int, err error) {
	if g == "" {
		return nil, nil
	}
	trees, err := hierarchies()
	if err != nil || len(trees) == 0 {
		return nil, err
	}
	b, err := os.ReadFile(path.Join(trees[0].root, string(g), "cgroup.procs"))
	for field := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(field); err == nil {
			all = append(all, pid)
		}
	}
	return all, err
}
