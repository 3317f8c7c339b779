//go:build linux

package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/internal/truststore"
)

// ContainerStageName is argv[0] of the agent's own program as the first of two that a process of a container becomes: it
// makes or enters the container's namespaces and gives up what the process is not to have.
const ContainerStageName = "msb-container"

// The descriptors of such a process behind its standard ones. A first process has the mounts of Container.start from
// stageRest on, any other the process whose namespaces it enters.
const (
	stageControl = 3 + iota
	stageOrder
	stageRest
)

// stageOrders is what such a process is told, in JSON.
type stageOrders struct {
	Setup   *ContainerSetup // nil to enter those of stageRest
	Process ContainerProcess
}

// stageError is why it didn't become the program. It says nothing else.
type stageError struct {
	Message  string
	Start    bool // the program can't be started
	NotFound bool
}

// RunContainerStage is the whole life of such a process: it returns the exit code for one that doesn't become the program.
func RunContainerStage() int {
	runtime.LockOSThread() // rights and namespaces are a thread's
	// What a container's other processes may trace or look into has still all rights, and the agent's root, before it is one
	// of them.
	err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	if err == nil {
		err = unix.CloseRange(stageControl, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	}
	if err == nil {
		err = runStage()
	}
	report := stageError{Message: err.Error()}
	code := 1
	if se := (*StartError)(nil); errors.As(err, &se) {
		report.Start, report.NotFound, code = true, se.NotFound, se.Code()
	}
	b, _ := json.Marshal(report) // it has texts alone
	_, _ = unix.Write(stageControl, b)
	return code
}

func runStage() error {
	var o stageOrders
	if err := json.NewDecoder(os.NewFile(stageOrder, "orders")).Decode(&o); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	if a := o.Process.OOMScoreAdj; a != nil { // by the agent's /proc
		if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(int(*a))), 0); err != nil {
			return fmt.Errorf("oomScoreAdj: %w", err)
		}
	}
	if o.Setup == nil {
		if err := enterContainer(); err != nil {
			return err
		}
		return o.Process.become()
	}
	if err := o.Setup.apply(o.Process.Cwd); err != nil {
		return err
	}
	if _, err := unix.Write(stageControl, []byte{'\n'}); err != nil {
		return err
	}
	if n, err := unix.Read(stageControl, make([]byte, 1)); n != 1 {
		return errors.Join(err, io.ErrUnexpectedEOF) // it is not to be started any more
	}
	return o.Process.become()
}

// enterContainer enters the namespaces of the process that is open as stageRest, but for that of processes, in which it was
// started.
func enterContainer() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("separate the thread's root: %w", err)
	}
	if err := unix.Setns(stageRest, unix.CLONE_NEWNS|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("enter the container: %w", err)
	}
	return ownCgroups()
}

// ownCgroups makes the control group that the process was started in the top of those that it sees.
func ownCgroups() error {
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("separate the control groups: %w", err)
	}
	return nil
}

// become makes the process the program.
func (p *ContainerProcess) become() error {
	owner, err := LookupOwner(strconv.FormatUint(uint64(p.UID), 10))
	if err != nil {
		owner.Home = "/" // of an image whose list of users can't be read
	}
	env := p.Env
	if p.TrustEnv {
		env = MergeEnv(truststore.Env(truststore.Bundle("/")), env)
	}
	env = completeEnv(env, identity{home: owner.Home}, p.TTY)
	for _, l := range p.Rlimits {
		n, _ := rlimitNumber(l.Name)
		if err := unix.Setrlimit(n, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}); err != nil {
			return fmt.Errorf("rlimits: %s: %w", l.Name, err)
		}
	}
	dir, err := workingDir(p.Cwd, false)
	if err != nil {
		return err
	}
	if err := unix.Chdir(dir); err != nil { // with root's rights, as for other processes
		return dirError(dir, err)
	}
	if p.Umask != nil {
		unix.Umask(int(*p.Umask & 0o777))
	}
	program, err := lookPath(p.Args[0], envValue(env, "PATH"), dir)
	if err != nil {
		return err
	}
	if err := p.giveUp(); err != nil {
		return err
	}
	return execError(program, syscall.Exec(program, p.Args, env))
}

// giveUp makes the calling thread one of the process's user, with its capabilities and no others.
func (p *ContainerProcess) giveUp() error {
	c := p.Capabilities
	for n := range capabilityNames {
		if c.Bounding&(1<<n) != 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(n), 0, 0, 0); err != nil && err != unix.EINVAL { // which the kernel doesn't know
			return fmt.Errorf("capabilities: drop CAP_%s: %w", capabilityNames[n], err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	groups := make([]int, len(p.Groups))
	for i, g := range p.Groups {
		groups[i] = int(g)
	}
	if err := unix.Setgroups(groups); err != nil {
		return fmt.Errorf("additional groups: %w", err)
	}
	// The calls as they are: those of Go change every thread, and this one alone becomes the program.
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(p.GID), uintptr(p.GID), uintptr(p.GID)); e != 0 {
		return fmt.Errorf("group %d: %w", p.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(p.UID), uintptr(p.UID), uintptr(p.UID)); e != 0 {
		return fmt.Errorf("user %d: %w", p.UID, e)
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep no capabilities: %w", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(c.Effective), Permitted: uint32(c.Permitted), Inheritable: uint32(c.Inheritable)},
		{Effective: uint32(c.Effective >> 32), Permitted: uint32(c.Permitted >> 32), Inheritable: uint32(c.Inheritable >> 32)},
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	for n := range capabilityNames {
		if c.Ambient&(1<<n) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(n), 0, 0); err != nil {
			return fmt.Errorf("capabilities: ambient CAP_%s: %w", capabilityNames[n], err)
		}
	}
	if p.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("noNewPrivileges: %w", err)
		}
	}
	return nil
}
