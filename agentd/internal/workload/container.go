//go:build linux

package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Container is a process tree with a root and namespaces of its own. Its processes are started from a thread whose
// children are in its process namespace.
type Container struct {
	spawner *Spawner
	group   *Cgroup
	pts     *os.File // the mount of its terminals
	first   *Process
	pidfd   *os.File // of the first process

	mu      sync.Mutex
	control *os.File // to the first process, until it is started
}

// ContainerFiles are handed over to NewContainer, which closes them.
type ContainerFiles struct {
	// Root and Binds are mounts that are attached nowhere, PTS one of devpts.
	Root, PTS *os.File
	Binds     []*os.File
}

// NewContainer makes a container in the group, whose first process waits for Start. Nothing is left of it after an error.
func NewContainer(ctx context.Context, r *Reaper, group *Cgroup, setup *ContainerSetup, p *ContainerProcess, files ContainerFiles) (_ *Container, err error) {
	c := &Container{spawner: NewSpawner(NewThread(), r), group: group, pts: files.PTS}
	defer func() {
		_ = files.Root.Close()
		for _, f := range files.Binds {
			_ = f.Close()
		}
		if err != nil {
			c.Close()
		}
	}()
	for _, dir := range []string{"root", "dev"} {
		if err := os.MkdirAll(filepath.Join(setup.Place, dir), 0o700); err != nil {
			return nil, err
		}
	}
	c.spawner.thread.Do(func() {
		if err = unix.Unshare(unix.CLONE_NEWPID); err != nil {
			err = fmt.Errorf("make a process namespace: %w", err)
		}
	})
	if err != nil {
		return nil, err
	}
	rest := append([]*os.File{files.Root, files.PTS}, files.Binds...)
	first, control, err := c.stage(stageOrders{Setup: setup, Process: *p}, rest, unix.CLONE_NEWNS|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS)
	if err != nil {
		return nil, err
	}
	c.first, c.control = first, control
	stop := context.AfterFunc(ctx, c.group.Kill)
	defer stop()
	said := make([]byte, 1)
	if _, err := io.ReadFull(control, said); err != nil {
		return nil, errors.Join(errStage, ctx.Err())
	}
	if said[0] == '\n' {
		return c, nil
	}
	said, err = io.ReadAll(io.MultiReader(bytes.NewReader(said), io.LimitReader(control, maxStageError)))
	return nil, errors.Join(stageReport(said), err)
}

// errStage is a process that ended before it became the program.
var errStage = errors.New("the container's process ended before it began")

// maxStageError bounds what such a process says of an error.
const maxStageError = 64 << 10

func stageReport(b []byte) error {
	var report stageError
	if err := json.Unmarshal(b, &report); err != nil {
		return errStage
	}
	if report.Start {
		return &StartError{NotFound: report.NotFound, Message: report.Message}
	}
	return fmt.Errorf("%w: %s", ErrRequest, report.Message)
}

// stage starts the agent's own program in the container's process namespace and control group, with orders.
func (c *Container) stage(o stageOrders, rest []*os.File, namespaces uintptr) (p *Process, control *os.File, err error) {
	b, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	orders, err := memoryFile(b)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = orders.Close() }() // it was read, or never will be
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	theirs := os.NewFile(uintptr(pair[1]), "control")
	defer func() { _ = theirs.Close() }() // the process has its own
	control, err = pollable(pair[0], "control")
	if err != nil {
		return nil, nil, err
	}
	pr := o.Process
	io, err := openStdio(Command{Argv: []string{"a container's process"}, TTY: pr.TTY, Size: pr.Size, Stdin: true, pts: c.pts}, identity{uid: pr.UID, gid: pr.GID})
	if err != nil {
		_ = control.Close()
		return nil, nil, err
	}
	defer io.closeChildEnds()
	pidfd := -1
	attr := &syscall.ProcAttr{
		Env:   []string{},
		Files: append(io.child[:], theirs.Fd(), orders.Fd()),
		Sys: &syscall.SysProcAttr{
			Setsid: true, Setctty: pr.TTY, Cloneflags: namespaces, PidFD: &pidfd,
			UseCgroupFD: true, CgroupFD: int(c.group.dir.Fd()),
		},
	}
	for _, f := range rest {
		attr.Files = append(attr.Files, f.Fd())
	}
	var started *child
	c.spawner.thread.Do(func() {
		started, err = c.spawner.reaper.start(func() (int, error) {
			return syscall.ForkExec("/proc/self/exe", []string{ContainerStageName}, attr)
		})
	})
	if pidfd >= 0 {
		if c.pidfd == nil {
			c.pidfd = os.NewFile(uintptr(pidfd), "process")
		} else {
			_ = unix.Close(pidfd)
		}
	}
	if err != nil {
		io.closeOurEnds()
		_ = control.Close()
		return nil, nil, fmt.Errorf("start a process of the container: %w", err)
	}
	return &Process{child: started, Stdin: io.stdin, Stdout: io.stdout, Stderr: io.stderr}, control, nil
}

func memoryFile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("orders", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "orders")
	if _, err = f.Write(b); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Start lets the first process become the program. It returns once it has.
func (c *Container) Start() (*Process, error) {
	c.mu.Lock()
	control := c.control
	c.control = nil
	c.mu.Unlock()
	if control == nil {
		return nil, fmt.Errorf("%w: the container was started already", ErrRequest)
	}
	if _, err := control.Write([]byte{'\n'}); err != nil { // it was killed, which its status tells
		return c.first, control.Close()
	}
	return c.first, await(control)
}

// await waits until a process has become its program, of which its end of the socket is closed.
func await(control *os.File) error {
	defer func() { _ = control.Close() }() // it was read
	b, err := io.ReadAll(io.LimitReader(control, maxStageError))
	if len(b) > 0 && b[0] == '\n' { // of another call
		b = b[1:]
	}
	switch {
	case errors.Is(err, unix.ECONNRESET): // it was killed
		return nil
	case err != nil:
		return err
	case len(b) == 0:
		return nil
	}
	return stageReport(b)
}

// Running reports whether the first process has not ended.
func (c *Container) Running() bool {
	select {
	case <-c.first.Done():
		return false
	default:
		return true
	}
}

// First is the first process.
func (c *Container) First() *Process { return c.first }

// Group is the container's control group.
func (c *Container) Group() *Cgroup { return c.group }

// Exec starts another process.
func (c *Container) Exec(p *ContainerProcess) (*Process, error) {
	c.mu.Lock()
	waits := c.control != nil
	c.mu.Unlock()
	if waits || !c.Running() {
		return nil, fmt.Errorf("%w: the container does not run", ErrRequest)
	}
	started, control, err := c.stage(stageOrders{Process: *p}, []*os.File{c.pidfd}, 0)
	if err != nil {
		return nil, err
	}
	if err := await(control); err != nil {
		<-started.Done()
		for _, f := range []*os.File{started.Stdin, started.Stdout, started.Stderr} {
			if f != nil {
				_ = f.Close() // nothing was started that would use it
			}
		}
		return nil, err
	}
	return started, nil
}

// Close ends all processes of the container and gives up what is of it. It returns an error for processes that don't end
// until ctx does.
func (c *Container) Close() {
	c.group.Kill()
	c.mu.Lock()
	if c.control != nil {
		_ = c.control.Close() // nothing is to be started any more
	}
	c.control = nil
	c.mu.Unlock()
	for _, f := range []*os.File{c.pts, c.pidfd} {
		if f != nil {
			_ = f.Close() // it was read only
		}
	}
	if c.first != nil && c.first.Stdin != nil {
		for _, f := range []*os.File{c.first.Stdin, c.first.Stdout, c.first.Stderr} {
			if f != nil {
				_ = f.Close() // the process that read it is killed
			}
		}
	}
	c.spawner.thread.Close()
}

// Signal sends sig to the process alone; false once it has ended.
func (c *child) Signal(sig syscall.Signal) bool {
	c.reaper.mu.Lock()
	defer c.reaper.mu.Unlock()
	return c.reaper.children[c.PID] == c && syscall.Kill(c.PID, sig) == nil
}
