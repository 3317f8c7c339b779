package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// exitFailed is the exit code of a runner that never became a VMM. Nobody
// reads it but people: the reason goes over the status pipe.
const exitFailed = 125

// Main is the hidden verb: it reads the plan, gives up rights and executes the
// VMM. It returns only when that went wrong, with the code to exit with.
func Main() int {
	// What is applied below belongs to this thread, and execve keeps it.
	runtime.LockOSThread()
	out := os.NewFile(statusFD, "status")
	err := become(out)
	report(out, status{Error: err.Error(), Code: codeOf(err), Namespaces: isNamespaceError(err)})
	return exitFailed
}

// become returns only an error.
func become(out io.Writer) error {
	plan, err := readPlan()
	if err != nil {
		return err
	}
	// Before the confinement, which may hide /proc.
	if err := dropStrays(FirstFileFD + plan.Files); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	if plan.Itself {
		if plan.program, err = unix.Open(ThisProgram, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open this program: %w", err)
		}
	}
	done, err := confine(plan)
	if err != nil {
		return err
	}
	if err := keepDescriptors(plan.Handover); err != nil {
		return err
	}
	// Set here once more: the kernel forgets it when credentials change. The
	// filter keeps the program from clearing it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("ask for the parent-death signal: %w", err)
	}
	if supervisorGone() {
		return errors.New("the supervisor is gone")
	}
	listener, err := refuseSyscalls(plan)
	if err != nil {
		return err
	}
	if plan.Recording { // it must outlive execve, or every call that is recorded fails
		if _, err := unix.FcntlInt(uintptr(listener), unix.F_SETFD, 0); err != nil {
			return err
		}
	}
	report(out, status{Confinement: done, Listener: listener})
	return fmt.Errorf("execute %s: %w", plan.Argv[0], plan.execute())
}

// execute returns only an error.
func (p *Plan) execute() error {
	if !p.Itself {
		return unix.Exec(p.Argv[0], p.Argv, p.Env)
	}
	argv, err := syscall.SlicePtrFromStrings(p.Argv)
	if err != nil {
		return err
	}
	env, err := syscall.SlicePtrFromStrings(p.Env)
	if err != nil {
		return err
	}
	var empty byte // the path
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(p.program), uintptr(unsafe.Pointer(&empty)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&env[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}

func readPlan() (*Plan, error) {
	f := os.NewFile(planFD, "plan")
	defer f.Close()
	var p Plan
	dec := json.NewDecoder(io.LimitReader(f, maxPlanBytes))
	dec.DisallowUnknownFields() // msb may be newer than the program in it, if only one was built
	if err := dec.Decode(&p); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if len(p.Argv) == 0 {
		return nil, errors.New("the plan has no program")
	}
	return &p, nil
}

func report(out io.Writer, s status) {
	// The other end may be gone; then there is nobody to tell.
	_ = json.NewEncoder(out).Encode(s) // see above
}

// keepDescriptors closes on execve what the program has no use for.
func keepDescriptors(handover bool) error {
	if handover {
		return nil
	}
	for _, fd := range []int{statusFD, livenessFD} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return nil
}

// supervisorGone tells whether the supervisor died before the parent-death
// signal was armed: its end of the liveness pipe is closed then. The parent's
// pid would not tell, it is 0 in a new pid namespace.
func supervisorGone() bool {
	fds := []unix.PollFd{{Fd: livenessFD, Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Handover is a program's side of the pipes that Plan.Handover kept open.
type Handover struct{ status *os.File }

// TakeHandover finds the pipes. From here on the process is killed when the
// supervisor goes away.
func TakeHandover() *Handover {
	unix.CloseOnExec(statusFD)
	unix.CloseOnExec(livenessFD)
	go func() {
		var b [1]byte
		for {
			_, err := unix.Read(livenessFD, b[:])
			if err == nil || !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		unix.Exit(exitFailed)
	}()
	return &Handover{status: os.NewFile(statusFD, "status")}
}

// Fail reports why the program can't go on.
func (h *Handover) Fail(err error) { report(h.status, status{Error: err.Error(), Code: codeOf(err)}) }

// Ready says that the program has nothing left to report.
func (h *Handover) Ready() error { return h.status.Close() }
