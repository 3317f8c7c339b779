package supervisor

import (
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/sandbox/internal/state"
)

// limitCore keeps secrets out of core files (invariant 8), for this process and its children.
func limitCore() error {
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
}

// setName gives this process the name of its program, in place of ThisProgram's.
func setName() { _ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) } // for people alone

// hideMemory makes the supervisor's memory unreadable to the user's other processes, and keeps it from
// core_pattern programs, which the core limit does not bind. Only after the VMM was started: a process
// that is not dumpable can't write the user namespace of its child.
func hideMemory() error {
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// executeAgain executes this program in this process's place, as the supervisor of a plan that has no caller. It returns on
// error alone.
func executeAgain(plan []byte) error {
	memory, err := unix.MemfdCreate("plan", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(memory), "plan")
	defer func() { _ = file.Close() }()
	if _, err := file.Write(plan); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }()
	// The descriptors that a start has to have may be free here, and so be theirs: the caller's is closed when it has gone.
	for _, give := range []struct {
		from *os.File
		to   []int
	}{{file, []int{state.PlanFD}}, {null, []int{state.StatusFD, state.ControlFD}}} {
		above, err := unix.FcntlInt(give.from.Fd(), unix.F_DUPFD_CLOEXEC, state.LockFD+1)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(above) }()
		for _, fd := range give.to {
			if err := unix.Dup3(above, fd, 0); err != nil {
				return err
			}
		}
	}
	if _, err := unix.FcntlInt(state.LockFD, unix.F_SETFD, 0); err != nil {
		return err
	}
	return unix.Exec(runner.ThisProgram, os.Args, os.Environ())
}

// closeStrays closes the descriptors above last that the caller's caller left open: a lock among them would be held for
// as long as the supervisor lives. This process opens its own with close-on-exec, and what it inherits comes without.
func closeStrays(last int) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= last {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
	return nil
}
