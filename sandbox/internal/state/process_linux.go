package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what sockaddr_un takes less its final NUL (unix(7)).
const maxSocketPath = 107

// shortPath is a path to file in dir that a socket's address takes, valid until done.
func shortPath(dir, file string) (path string, done func(), err error) {
	if path = filepath.Join(dir, file); len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), file), func() { _ = d.Close() }, nil
}

// ProcessID names a process for as long as the machine is up, however pids are used again.
type ProcessID struct {
	PID int `json:"pid"`
	// Start is when it started, in the clock ticks of /proc/PID/stat.
	Start string `json:"start"`
}

func Identify(pid int) ProcessID {
	start, _ := processStart(pid)
	return ProcessID{pid, start}
}

// processStart is when a process started, and whether it is over.
func processStart(pid int) (start string, over bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", true
	}
	return parseStat(b)
}

// parseStat reads a process's stat file (proc(5): fields 3, 20 and 22). A process is over when it is a zombie, or is being
// taken off the list, and its other threads have released its files too. The name before the fields may hold anything.
func parseStat(b []byte) (start string, over bool) {
	const state, threads, started = 0, 17, 19 // counted from the state
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) <= started {
		return "", true
	}
	return fields[started], (fields[state] == "Z" || fields[state] == "X") && (fields[threads] == "0" || fields[threads] == "1")
}

// over reports whether the process has ended.
func (p ProcessID) over() bool {
	start, over := processStart(p.PID)
	return over || start != p.Start
}

// Gone waits until the process has ended.
func (p ProcessID) Gone(limit time.Duration) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.over() {
			return nil
		}
		select {
		case <-deadline.C:
			return fmt.Errorf("%w: the machine of its last run, process %s, is still there; end it", ErrRunning, strconv.Itoa(p.PID))
		case <-tick.C:
		}
	}
}

// errPeerGone says that the process at the other end has ended.
var errPeerGone = errors.New("it has ended")

// openPeer returns a descriptor of the process that listens on the other end of conn: the one that the kernel says,
// and no other, whatever pids are used again meanwhile.
func openPeer(conn net.Conn) (pidfd int, err error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return -1, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return -1, fmt.Errorf("the sandbox's supervisor can't be found: %w", err)
	}
	pidfd, err = unix.PidfdOpen(int(cred.Pid), 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, errPeerGone
	}
	if err != nil {
		return -1, fmt.Errorf("the sandbox's supervisor can't be found: %w", err)
	}
	if hungUp(raw) { // it ended before there was a descriptor, whose process may be another one
		return -1, errors.Join(errPeerGone, unix.Close(pidfd))
	}
	if foreign(int(cred.Pid)) {
		return -1, errors.Join(fmt.Errorf("%w: process %d", ErrForeign, cred.Pid), unix.Close(pidfd))
	}
	return pidfd, nil
}

// ErrForeign keeps a signal from a process that has nothing to do with the sandbox.
var ErrForeign = errors.New("the recorded supervisor of the sandbox is another program; if nothing of the sandbox runs, remove its control.sock and run.json")

// foreign reports whether a process says by its command line that it is no supervisor. Where /proc hides that
// (proc(5), hidepid) it is taken for one.
func foreign(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return false
	}
	args := strings.Split(string(b), "\x00")
	return len(args) < 2 || args[1] != Verb
}

// SignalPeer sends a signal to the process at the other end of conn.
func SignalPeer(conn net.Conn, n syscall.Signal) error {
	pidfd, err := openPeer(conn)
	if err != nil {
		return err
	}
	return errors.Join(signalled(pidfd, n), unix.Close(pidfd))
}

// EndPeer ends the process at the other end of conn, and waits until it has gone.
func EndPeer(ctx context.Context, conn net.Conn, limit time.Duration) error {
	pidfd, err := openPeer(conn)
	_ = conn.Close() // a server that ends waits for what its clients have begun to say
	if errors.Is(err, errPeerGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return endProcess(ctx, pidfd, limit)
}

// WatchPeer returns what waits until the process at the other end of conn, which it closes, has ended.
func WatchPeer(conn net.Conn) (wait func(context.Context) error, err error) {
	pidfd, err := openPeer(conn)
	_ = conn.Close()
	if errors.Is(err, errPeerGone) {
		return func(context.Context) error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	process := os.NewFile(uintptr(pidfd), "pidfd") // which is closed without a wait, too
	return func(ctx context.Context) error {
		defer func() { _ = process.Close() }()
		for {
			if err := ended(ctx, pidfd, time.Hour); !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		}
	}, nil
}

// End ends the process, unless the pid is another's by now, and waits until it has gone.
func (p ProcessID) End(ctx context.Context, limit time.Duration) error {
	pidfd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the sandbox's supervisor can't be found: %w", err)
	}
	start, over := processStart(p.PID)
	if over {
		return unix.Close(pidfd)
	}
	if start != p.Start || foreign(p.PID) {
		return errors.Join(fmt.Errorf("%w: process %d", ErrForeign, p.PID), unix.Close(pidfd))
	}
	return endProcess(ctx, pidfd, limit)
}

// endProcess ends the process of pidfd, which it closes, and waits until it has gone.
func endProcess(ctx context.Context, pidfd int, limit time.Duration) error {
	defer func() { _ = unix.Close(pidfd) }()
	if err := signalled(pidfd, unix.SIGTERM); err != nil {
		return err
	}
	if err := ended(ctx, pidfd, limit); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if err := signalled(pidfd, unix.SIGKILL); err != nil {
		return err
	}
	return errors.Join(ended(ctx, pidfd, limit), fmt.Errorf("%w: it did not stop within %s and was killed", ErrSupervisor, limit))
}

// hungUp reports whether the other end of a connection is closed.
func hungUp(raw syscall.RawConn) (gone bool) {
	err := raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}

func signalled(pidfd int, n unix.Signal) error {
	if err := unix.PidfdSendSignal(pidfd, n, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending the sandbox's supervisor: %w", err)
	}
	return nil
}

// ended waits until the process of pidfd has ended; os.ErrDeadlineExceeded when it has not within limit.
func ended(ctx context.Context, pidfd int, limit time.Duration) error {
	const step = 50 * time.Millisecond
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, err := unix.Poll(fds, int(step/time.Millisecond)); err == nil && n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return os.ErrDeadlineExceeded
}
