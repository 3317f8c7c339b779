//go:build linux

package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Cgroups gives every exec a control group of its own, for two questions: did
// the kernel kill something of it for lack of memory, and is all of it dead.
type Cgroups struct {
	root string

	mu      sync.Mutex
	next    uint64
	ready   *Cgroup  // the next one; nil for none
	lingers []string // groups whose exec is over and that still hold processes
}

// Limits bound the processes of all execs together, so that a fork bomb leaves
// the agent what it needs to answer and to end it; 0 sets no bound.
type Limits struct {
	PIDs        int
	MemoryBytes int64
}

// NewCgroups prepares the cgroup2 file system at mount for execs. Processor
// time is shared between execs, and the agent, which stays in the root group,
// counts as much as all of them together: with a thousand runnable processes it
// still runs at once.
func NewCgroups(mount string, limits Limits) (*Cgroups, error) {
	root := filepath.Join(mount, "msb")
	if err := os.MkdirAll(root, 0o755); err != nil { //nolint:gosec // the workload may look
		return nil, fmt.Errorf("make control groups: %w", err)
	}
	for _, dir := range []string{mount, root} {
		file := filepath.Join(dir, "cgroup.subtree_control")
		if os.WriteFile(file, []byte("+memory +pids +cpu"), 0) == nil { // each write waits for the kernel some milliseconds
			continue
		}
		for _, controller := range []string{"+memory", "+pids", "+cpu"} {
			// A kernel without the controller still has cgroup.kill.
			_ = os.WriteFile(file, []byte(controller), 0)
		}
	}
	for file, limit := range map[string]int64{"pids.max": int64(limits.PIDs), "memory.max": limits.MemoryBytes} {
		if limit > 0 {
			_ = os.WriteFile(filepath.Join(root, file), []byte(strconv.FormatInt(limit, 10)), 0) // as above
		}
	}
	return &Cgroups{root: root}, nil
}

// Prepare makes the group that New gives next. Where it can't, New tries again.
func (c *Cgroups) Prepare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready == nil {
		c.ready, _ = c.make()
	}
}

// Cgroup is the control group of one exec.
type Cgroup struct {
	all  *Cgroups
	path string
	dir  *os.File
}

// New makes a group for one exec.
func (c *Cgroups) New() (*Cgroup, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	if ready := c.ready; ready != nil {
		c.ready = nil
		return ready, nil
	}
	return c.make()
}

func (c *Cgroups) make() (*Cgroup, error) {
	c.next++
	path := filepath.Join(c.root, "exec-"+strconv.FormatUint(c.next, 10))
	if err := os.Mkdir(path, 0o755); err != nil { //nolint:gosec // the workload may look
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a control group: %w", err)
	}
	return &Cgroup{all: c, path: path, dir: dir}, nil
}

// sweep removes groups whose last background process has ended since. Their
// number is bounded by the number of processes alive.
func (c *Cgroups) sweep() {
	keep := c.lingers[:0]
	for _, path := range c.lingers {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			keep = append(keep, path)
		}
	}
	c.lingers = keep
}

// Kill ends every process of the group, also those that left the process
// group or the session.
func (g *Cgroup) Kill() {
	_ = os.WriteFile(filepath.Join(g.path, "cgroup.kill"), []byte("1"), 0) // the group's signals come as well
}

// OOMKilled tells whether the kernel killed a process of the group for lack of
// memory.
func (g *Cgroup) OOMKilled() bool {
	b, err := os.ReadFile(filepath.Join(g.path, "memory.events"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			return n != "0"
		}
	}
	return false
}

// Close gives the group up; background processes stay in it until they end.
func (g *Cgroup) Close() {
	g.dir.Close()
	g.all.mu.Lock()
	defer g.all.mu.Unlock()
	if os.Remove(g.path) != nil {
		g.all.lingers = append(g.all.lingers, g.path)
	}
}
