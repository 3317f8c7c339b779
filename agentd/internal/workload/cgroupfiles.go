//go:build linux

package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// NewNamed makes a group of that name, which no exec has.
func (c *Cgroups) NewNamed(name string) (*Cgroup, error) {
	path := filepath.Join(c.root, name)
	if err := os.Mkdir(path, 0o755); err != nil { //nolint:gosec // the workload may look
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	dir, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open a control group: %w", err)
	}
	return &Cgroup{all: c, path: path, dir: dir}, nil
}

// limitFiles are the beginnings of names that Set may be given.
var limitFiles = []string{"memory.", "cpu.", "cpuset.", "pids.", "io.", "hugetlb."}

// CheckLimit says why a file of control groups can't be written.
func CheckLimit(name string) error {
	if strings.ContainsAny(name, "/\x00") || !slices.ContainsFunc(limitFiles, func(p string) bool { return strings.HasPrefix(name, p) }) {
		return fmt.Errorf("resources: %.60q is no limit of control groups of version 2", name)
	}
	return nil
}

// Set writes a file of the group.
func (g *Cgroup) Set(name, value string) error {
	err := os.WriteFile(filepath.Join(g.path, name), []byte(value), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("resources: the guest's kernel has no %s", name)
	}
	if err != nil {
		return fmt.Errorf("resources: %s: %w", name, errors.Unwrap(err))
	}
	return nil
}

// maxValues bounds what is read of a file with names and numbers.
const maxValues = 256

// Values reads a file of lines with a name and a number each.
func (g *Cgroup) Values(name string) (map[string]uint64, error) {
	b, err := os.ReadFile(filepath.Join(g.path, name))
	if err != nil {
		return nil, err
	}
	values := map[string]uint64{}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) != 2 || len(values) == maxValues {
			continue
		}
		if n, err := strconv.ParseUint(string(f[1]), 10, 64); err == nil {
			values[string(f[0])] = n
		}
	}
	return values, nil
}

// Value reads a file with one number; the highest for "max", 0 for one that isn't there.
func (g *Cgroup) Value(name string) uint64 {
	b, err := os.ReadFile(filepath.Join(g.path, name))
	text := strings.TrimSpace(string(b))
	if err == nil && text == "max" {
		return math.MaxUint64
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Procs are the processes of the group and of those below it, at most limit.
func (g *Cgroup) Procs(limit int) (pids []int, err error) {
	err = filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil //nolint:nilerr // a group that has gone has no processes
		}
		b, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) // the same
		for field := range bytes.FieldsSeq(b) {
			n, err := strconv.Atoi(string(field))
			if err == nil && n > 0 && len(pids) < limit {
				pids = append(pids, n)
			}
		}
		return nil
	})
	return pids, err
}

// Freeze holds all processes of the group still, or lets them go on. It returns once that is so.
func (g *Cgroup) Freeze(hold bool, stop <-chan struct{}) error {
	want, text := uint64(0), "0"
	if hold {
		want, text = 1, "1"
	}
	changed, end, err := watchFile(filepath.Join(g.path, "cgroup.events"))
	if err != nil {
		return err
	}
	defer end()
	if err := os.WriteFile(filepath.Join(g.path, "cgroup.freeze"), []byte(text), 0); err != nil {
		return fmt.Errorf("freeze the container: %w", err)
	}
	for {
		events, err := g.Values("cgroup.events")
		if err != nil || events["frozen"] == want {
			return err
		}
		select {
		case <-changed:
		case <-stop:
			return errors.New("processes of the container can't be held still now")
		}
	}
}

// Settle waits until no process of the group is left, at most for limit.
func (g *Cgroup) Settle(limit time.Duration) error {
	changed, end, err := watchFile(filepath.Join(g.path, "cgroup.events"))
	if err != nil {
		return err
	}
	defer end()
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		events, err := g.Values("cgroup.events")
		if err != nil || events["populated"] == 0 {
			return err
		}
		select {
		case <-changed:
		case <-late.C:
			return errors.New("processes of the container do not end")
		}
	}
}

// WatchOOM tells how many processes of the group the kernel has killed for lack of memory, whenever there are more, until
// stop is called.
func (g *Cgroup) WatchOOM(tell func(kills uint64)) (stop func(), err error) {
	changed, end, err := watchFile(filepath.Join(g.path, "memory.events"))
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		last := uint64(0)
		for range changed {
			if values, err := g.Values("memory.events"); err == nil && values["oom_kill"] > last {
				last = values["oom_kill"]
				tell(last)
			}
		}
	}()
	return func() { end(); <-done }, nil
}

// watchFile says when a file has changed. The channel is closed by end.
func watchFile(path string) (changed <-chan struct{}, end func(), err error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, nil, err
	}
	if _, err := unix.InotifyAddWatch(fd, path, unix.IN_MODIFY); err != nil {
		_ = unix.Close(fd) // nothing is watched
		return nil, nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		buf := make([]byte, 4096)
		for {
			if _, err := f.Read(buf); err != nil {
				return
			}
			select {
			case out <- struct{}{}:
			default: // who reads it looks at the file anyway
			}
		}
	}()
	return out, func() { _ = f.Close() }, nil
}

// Remove removes the group, which has no processes any more, with those that they made below it.
func (g *Cgroup) Remove() error {
	var all []string
	_ = filepath.WalkDir(g.path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	slices.Reverse(all)
	err := g.dir.Close()
	for _, dir := range all {
		if e := os.Remove(dir); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
