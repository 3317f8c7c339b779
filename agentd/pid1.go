//go:build linux

package agentd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/system"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// errNotPID1 means that the program was started anywhere but as a machine's
// first process.
var errNotPID1 = errors.New("agentd is the first process of a microVM and does nothing elsewhere")

// portWait is how long the host may take to open the agent's port.
const portWait = 60 * time.Second

// Main is PID 1 of the guest: it serves the host and leaves the machine when the session is
// over. It returns only if it is not PID 1. Its messages go to the console, which the host
// keeps as a log.
func Main() error {
	if os.Getpid() != 1 {
		return errNotPID1
	}
	agentpb.QuietLog()
	err := system.Boot()
	log := slog.New(slog.NewTextHandler(console(), nil))
	if err == nil {
		system.Settle()
		err = serveHost(context.Background(), log)
	}
	if err != nil && !errors.Is(err, errHostGone) {
		log.Error("agent session ended", "err", err)
	}
	system.KillAll(unix.SIGKILL)
	// When even this fails, PID 1 returns, the kernel panics, and panic=-1
	// leaves the machine.
	return system.Leave()
}

// console is the machine's console: PID 1's own descriptors are closed where
// its root had no /dev/console.
func console() *os.File {
	f, err := os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return os.Stderr
	}
	// A panic's trace goes there as well.
	_ = unix.Dup3(int(f.Fd()), 2, 0)
	return f
}

func serveHost(ctx context.Context, log *slog.Logger) error {
	waitCtx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	port, err := system.OpenPort(waitCtx, agentpb.PortName)
	if err != nil {
		return err
	}
	// Before anything of the workload runs, which could open it otherwise.
	dirs, err := system.OpenPort(waitCtx, agentpb.DirectoryPortName)
	if err != nil {
		return err
	}
	if err := system.LoopbackUp(); err != nil {
		log.Warn("no loopback", "err", err)
	}
	system.NoAutoconf()
	prepareMessages()
	thread := workload.NewThread()
	ops := &guest{thread: thread, log: log}
	if err := ops.devices.List(); err != nil {
		log.Warn("network devices", "err", err)
	}
	if ops.cgroups, err = workload.NewCgroups(system.CgroupMount, workloadLimits()); err != nil {
		log.Warn("no control groups", "err", err)
	} else {
		ops.cgroups.Prepare()
	}
	reaper := workload.NewReaper(true)
	s := newServer(ops, workload.NewSpawner(thread, reaper))
	messages, err := rawPort(dirs)
	if err != nil {
		return err
	}
	s.carrier = newCarrier(&portReader{rawFile: messages})
	s.containers = &containerServer{
		cgroups: ops.cgroups, reaper: reaper, shutdown: s.shutdown, log: log,
		mounts: &hostMounts{carrier: s.carrier, carries: &s.carries, log: log, all: map[uint32]*hostMount{}},
		all:    map[string]*container{}, busy: map[string]chan struct{}{}, watchers: map[chan *agentpb.ContainerEvent]struct{}{},
	}
	if err := s.serve(port); err != nil {
		return fmt.Errorf("serve the host: %w", err)
	}
	return nil
}

// workloadLimits reserves for the agent and the kernel half of the threads, and a sixteenth of the memory that is free
// before the first exec, at most 64 MiB.
func workloadLimits() workload.Limits {
	free := system.ReadStats().MemoryAvailable
	return workload.Limits{PIDs: system.ThreadLimit() / 2, MemoryBytes: free - min(free/16, 64<<20)}
}

// rawPort makes a rawFile of a port.
func rawPort(port *os.File) (*rawFile, error) {
	fd, err := unix.FcntlInt(port.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err = errors.Join(err, port.Close()); err != nil {
		return nil, err
	}
	return newRawFile(fd)
}
