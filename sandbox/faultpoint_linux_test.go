package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

// faultCalls are the system calls by which a process changes what outlives it: each of them is a place for a fault. What
// the kernel does in one of them is done whole or not at all, so that no kill can come to a state that a kill before or
// behind one of them doesn't.
var faultCalls = map[int32]struct {
	name      string
	dir, path int // arguments that say where: a directory's descriptor and a path in it; -1 for none
	grows     bool
}{
	unix.SYS_OPENAT:          {"openat", 0, 1, true}, // for writing
	unix.SYS_MKDIRAT:         {"mkdirat", 0, 1, true},
	unix.SYS_RENAMEAT:        {"renameat", 2, 3, true},
	unix.SYS_RENAMEAT2:       {"renameat2", 2, 3, true},
	unix.SYS_LINKAT:          {"linkat", 2, 3, true},
	unix.SYS_SYMLINKAT:       {"symlinkat", 1, 2, true},
	unix.SYS_UNLINKAT:        {"unlinkat", 0, 1, false},
	unix.SYS_FCHMODAT:        {"fchmodat", 0, 1, false},
	unix.SYS_UTIMENSAT:       {"utimensat", 0, 1, false},
	unix.SYS_WRITE:           {"write", 0, -1, true},
	unix.SYS_PWRITE64:        {"pwrite64", 0, -1, true},
	unix.SYS_COPY_FILE_RANGE: {"copy_file_range", 2, -1, true},
	unix.SYS_FTRUNCATE:       {"ftruncate", 0, -1, true},
	unix.SYS_FALLOCATE:       {"fallocate", 0, -1, true},
	unix.SYS_FCHMOD:          {"fchmod", 0, -1, false},
	unix.SYS_FLOCK:           {"flock", 0, -1, false},
	unix.SYS_FSYNC:           {"fsync", 0, -1, false},
	unix.SYS_SYNCFS:          {"syncfs", 0, -1, false},
}

// fakeVMMArg is the first argument of the process that stands for a VMM.
const fakeVMMArg = "__fake-vmm"

// Kinds of faults: the process that is in the call, or another one, is killed, or from then on the disk takes nothing.
const (
	killSelf       = "kill -9 of the process"
	killCaller     = "kill -9 of the caller"
	killSupervisor = "kill -9 of the supervisor"
	killVMM        = "kill -9 of the VMM"
	diskFull       = "a disk that is full from there on"
	diskReadOnly   = "a disk that is read-only from there on"
)

// otherFileSystem is where processes keep what is temporary, as most machines' /tmp: in the home's own file system, renameio
// would write there what it then renames, and no fault would reach it.
const otherFileSystem = "/dev/shm"

// trap makes this process, and those that it starts, ask whoever has the filter's listener before each of faultCalls.
func trap() error {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	jump := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | code | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	verdict := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	prog := []unix.SockFilter{load(0)}
	for nr := range faultCalls {
		if nr == unix.SYS_OPENAT {
			prog = append(prog, jump(unix.BPF_JEQ, uint32(nr), 0, 4), load(16+8*2),
				jump(unix.BPF_JSET, unix.O_CREAT|unix.O_WRONLY|unix.O_RDWR|unix.O_TRUNC, 0, 1), verdict(unix.SECCOMP_RET_USER_NOTIF), verdict(unix.SECCOMP_RET_ALLOW))
			continue
		}
		prog = append(prog, jump(unix.BPF_JEQ, uint32(nr), 0, 1), verdict(unix.SECCOMP_RET_USER_NOTIF))
	}
	prog = append(prog, verdict(unix.SECCOMP_RET_ALLOW))
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	all := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	const flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&all)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return errno
	}
	return nil
}

// notification is struct seccomp_notif.
type notification struct {
	id         uint64
	pid, flags uint32
	nr         int32
	arch       uint32
	ip         uint64
	args       [6]uint64
}

// notificationReply is struct seccomp_notif_resp.
type notificationReply struct {
	id    uint64
	val   int64
	errno int32
	flags uint32
}

// faults does one kind of fault at one of the calls that processes make in a home, once it is armed.
type faults struct {
	home, mark string
	kind       string
	at         int

	mu     sync.Mutex
	armed  bool
	caller int
	steps  []string // what was called
	hit    string   // the one with the fault; "" if there were not as many
	struck string   // the kind of process that was killed
	killed []state.ProcessID
}

func (f *faults) arm(kind string, at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.at, f.armed, f.steps, f.hit, f.struck = kind, at, true, nil, "", ""
}

// disarm lets everything go on, and waits until what was killed is gone: its socket may answer until then.
func (f *faults) disarm(t *testing.T) (steps []string, hit, struck string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	for _, p := range f.killed {
		must(t, p.Gone(settleTime))
	}
	f.killed = nil
	return f.steps, f.hit, f.struck
}

// run runs a command whose processes ask f, to its end.
func (f *faults) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	must(t, cmd.Start())
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	must(t, err)
	defer func() { _ = unix.Close(pidfd) }()
	f.mu.Lock()
	f.caller = cmd.Process.Pid
	f.mu.Unlock()
	fds := filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "fd")
	for n := -1; n < 0; {
		entries, err := os.ReadDir(fds)
		if err != nil || cmd.ProcessState != nil || t.Context().Err() != nil {
			t.Fatalf("%v: it has made no filter", err)
		}
		for _, e := range entries {
			if to, _ := os.Readlink(filepath.Join(fds, e.Name())); strings.Contains(to, "seccomp") {
				n, _ = strconv.Atoi(e.Name())
			}
		}
		if n >= 0 {
			fd, err := unix.PidfdGetfd(pidfd, n, 0)
			must(t, err)
			go f.serve(fd)
		}
	}
	_ = cmd.Wait() // what it printed is what counts
}

// serve answers until nobody is left who has the filter.
func (f *faults) serve(fd int) {
	defer func() { _ = unix.Close(fd) }()
	for {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if ready[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // it was killed meanwhile
		}
		reply := notificationReply{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if errno := f.decide(&n); errno != 0 {
			reply.errno, reply.flags = -int32(errno), 0
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&reply)))
	}
}

// decide does the fault, or says which error the call has.
func (f *faults) decide(n *notification) unix.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.armed {
		return 0
	}
	call := faultCalls[n.nr]
	where := placeOf(n, call.dir, call.path)
	if where != f.home && !strings.HasPrefix(where, f.home+"/") {
		return 0
	}
	pid, role := f.who(int(n.pid))
	f.steps = append(f.steps, fmt.Sprintf("%s: %s %s", role, call.name, strings.TrimPrefix(where, f.home)))
	if len(f.steps) < f.at || f.at == 0 {
		return 0
	}
	first := len(f.steps) == f.at
	if first {
		f.hit = f.steps[f.at-1]
	}
	switch {
	case f.kind == diskFull && call.grows && (n.nr != unix.SYS_OPENAT || n.args[2]&unix.O_CREAT != 0 && !isThere(where)):
		return unix.ENOSPC
	case f.kind == diskReadOnly && n.nr != unix.SYS_FLOCK && n.nr != unix.SYS_FSYNC && n.nr != unix.SYS_SYNCFS:
		return unix.EROFS
	case !first || f.kind == diskFull || f.kind == diskReadOnly:
	case f.kind == killSelf:
		f.strike(pid, role)
	case f.kind == killCaller:
		f.strike(f.caller, "caller")
	case realMachines:
		for _, name := range []string{"a", "b"} {
			var r state.RunRecord
			if state.ReadJSON(filepath.Join(f.home, "state", state.NamedDir, name), state.InfoFile, &r) != nil {
				continue
			}
			if f.kind == killVMM && r.VMM.PID != 0 {
				f.strike(r.VMM.PID, "VMM")
			} else if f.kind == killSupervisor {
				f.strike(r.Supervisor.PID, "supervisor")
			}
		}
	default:
		for _, pid := range markedProcesses(f.mark) {
			if _, role := f.who(pid); "kill -9 of the "+role == f.kind {
				f.strike(pid, role)
			}
		}
	}
	return 0
}

func (f *faults) strike(pid int, role string) {
	f.struck, f.killed = role, append(f.killed, state.Identify(pid))
	_ = unix.Kill(pid, unix.SIGKILL)
}

func isThere(path string) bool { _, err := os.Lstat(path); return err == nil }

// placeOf is the path that a call means; "" if that can't be told.
func placeOf(n *notification, dir, path int) string {
	proc := filepath.Join("/proc", strconv.Itoa(int(n.pid)))
	name := ""
	if path >= 0 {
		mem, err := os.Open(filepath.Join(proc, "mem"))
		if err != nil {
			return ""
		}
		defer func() { _ = mem.Close() }()
		b := make([]byte, unix.PathMax)
		got, _ := mem.ReadAt(b, int64(n.args[path])) // it may end within
		b, _, _ = bytes.Cut(b[:got], []byte{0})
		name = string(b)
	}
	if filepath.IsAbs(name) {
		return filepath.Clean(name)
	}
	at := filepath.Join(proc, "cwd")
	if fd := int32(n.args[dir]); fd >= 0 {
		at = filepath.Join(proc, "fd", strconv.Itoa(int(fd)))
	}
	to, err := os.Readlink(at)
	if err != nil {
		return ""
	}
	return filepath.Join(to, name)
}

// who is the process of a thread, and what it is.
func (f *faults) who(tid int) (pid int, role string) {
	pid = tid
	status, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(tid), "status"))
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "Tgid:"); ok {
			pid, _ = strconv.Atoi(strings.TrimSpace(text))
		}
	}
	argv, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	words := strings.Split(string(argv), "\x00")
	switch {
	case len(words) > 1 && words[1] == Verb:
		return pid, "supervisor"
	case len(words) > 1 && words[1] == fakeVMMArg:
		return pid, "VMM"
	}
	return pid, "caller"
}

// markedProcesses are those with that variable in their environment, but for this one.
func markedProcesses(mark string) (pids []int) {
	entries, _ := os.ReadDir("/proc") // it is always there
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && slices.Contains(strings.Split(string(env), "\x00"), mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// do runs one operation in a process of its own, under the filter, and returns what it said: whether it is done, and if
// not, why.
func (f *faults) do(t *testing.T, o operation) (done bool, why string) {
	t.Helper()
	o.Trap = true
	text, err := json.Marshal(o)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), callerEnv+"="+string(text), "TMPDIR="+otherFileSystem)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second // its children may have its pipes
	f.run(t, cmd)
	return out.String() == "done", errs.String()
}
