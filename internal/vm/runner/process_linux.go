package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
)

// process is one VMM process, from fork to reaping.
type process struct {
	cmd      *exec.Cmd
	liveness *os.File // closing it, or dying, is what the VMM notices
	cgroup   *cgroup  // its own, or nil

	// mu keeps a kill from hitting a process group whose leader was reaped and
	// whose number belongs to someone else by now.
	mu     sync.Mutex
	reaped bool
	killed bool

	done chan struct{} // closed after reaping
}

// spawn starts the runner, in program unless that is nil, which is this build also after an upgrade, and in the group unless
// that is nil, and returns once it was forked. The process takes the group over.
func spawn(p Plan, program *os.File, files []*os.File, stderr *os.File, group *cgroup) (*process, *os.File, error) {
	if p.Itself {
		itself := ThisProgram
		if program != nil {
			itself = program.Name()
		}
		p.ReadOnly = slices.Concat(p.ReadOnly, Libraries(append([]string{itself}, p.Loads...)...))
		slices.Sort(p.ReadOnly)
		p.ReadOnly = slices.Compact(p.ReadOnly) // a link can be made once
	}
	planR, err := writePlan(&p)
	if err != nil {
		return nil, nil, err
	}
	defer planR.Close()
	statusR, statusW, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer statusW.Close()
	liveR, liveW, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(err, statusR.Close())
	}
	defer liveR.Close()

	cmd := exec.Command(ThisProgram, Verb) //nolint:noctx // the machine outlives the context of its start
	cmd.Args[0] = os.Args[0]
	cmd.ExtraFiles = slices.Concat([]*os.File{planR, statusW, liveR}, files)
	if program != nil { // behind the VMM's own files, where Main closes everything
		cmd.Path = fmt.Sprintf("%s/%d", Descriptors, planFD+len(cmd.ExtraFiles))
		cmd.ExtraFiles = append(cmd.ExtraFiles, program)
	}
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = stderr, stderr
	cmd.SysProcAttr = attributes(p.Namespaces)
	if group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.dir.Fd())
	}

	proc := &process{cmd: cmd, liveness: liveW, cgroup: group, done: make(chan struct{})}
	if err := proc.start(); err != nil {
		return nil, nil, errors.Join(err, statusR.Close(), liveW.Close())
	}
	return proc, statusR, nil
}

func writePlan(p *Plan) (*os.File, error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return PipeWith(raw)
}

// PipeWith returns the reading end of a pipe that holds data and no writer.
func PipeWith(data []byte) (*os.File, error) {
	if len(data) > maxPlanBytes {
		return nil, fmt.Errorf("machine description of %d bytes is over %d: use fewer disks or shorter paths", len(data), maxPlanBytes)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	_, err = w.Write(data)
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func attributes(namespaces bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if namespaces {
		attr.Cloneflags = namespaceFlags
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		attr.GidMappingsEnableSetgroups = false
	}
	return attr
}

// start forks on a thread of its own that lives as long as the child: the
// parent-death signal is sent when the thread that forked ends, not the process.
func (p *process) start() error {
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.reap()
		}
	}()
	return <-started
}

// reap waits for the child, ends what is left of its group and reaps it.
func (p *process) reap() {
	defer close(p.done)
	for {
		// WNOWAIT: until it is reaped, below and under the lock, the number
		// stays taken.
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL)
	_ = p.cmd.Wait()
	p.reaped = true
	_ = p.liveness.Close()
	p.cgroup.close()
}

// signal sends the whole group a signal.
func (p *process) signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return vm.ErrKilled
	}
	return os.NewSyscallError("kill", unix.Kill(-p.cmd.Process.Pid, sig))
}

// kill ends the whole group and waits until it is reaped.
func (p *process) kill() error {
	p.mu.Lock()
	var err error
	if !p.reaped {
		p.killed = true
		if err = unix.Kill(-p.cmd.Process.Pid, unix.SIGKILL); errors.Is(err, unix.ESRCH) {
			// The child has not made its group yet.
			err = p.cmd.Process.Kill()
		}
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("kill the VMM: %w", err)
	}
	<-p.done
	return nil
}

func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// maxStatusBytes bounds what is read from a runner. A libkrun that was broken
// into at load is no reason to fill our memory.
const maxStatusBytes = 64 << 10

// awaitReady reads the status pipe until the VMM has closed it. record is given
// the listener of a recording as soon as it is there: the VMM waits for it.
func awaitReady(ctx context.Context, r *os.File, record func(listener int) error) (status, error) {
	defer r.Close()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(past) })
	defer stop()
	var sum status
	for dec := json.NewDecoder(io.LimitReader(r, maxStatusBytes)); ; {
		var s status
		switch err := dec.Decode(&s); {
		case ctx.Err() != nil:
			return status{}, ctx.Err()
		case errors.Is(err, io.EOF):
			return sum, nil
		case err != nil:
			return sum, fmt.Errorf("read the runner's status: %w", err)
		}
		if s.Listener != 0 && record != nil {
			if err := record(s.Listener); err != nil {
				return sum, err
			}
		}
		sum.Confinement = append(sum.Confinement, s.Confinement...)
		if s.Error != "" {
			sum.Error, sum.Code, sum.Namespaces = s.Error, s.Code, s.Namespaces
		}
	}
}
