//go:build linux

package runner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// probeArg makes the test's program stand in for a VMM: it tries what a
// broken-out one would and reports on the agent's descriptor.
const probeArg = "__probe-for-test"

// strayFD is far above what the runtime opens.
const strayFD = 77

// findings is what the stand-in reports.
type findings struct {
	// Stray is the error of looking at a descriptor that nobody handed over.
	Stray, StrayNext string
	// Memory are the descriptors that lead to files without a name.
	Memory      []int
	Root        []string
	Env         []string
	Interfaces  int
	PID         int
	Socket      string
	Ptrace      string
	Unshare     string
	ReadSecret  string
	ReadGranted string
	WriteRO     string
	WriteRW     string
	NoNewPrivs  int
	CoreLimit   uint64
	FileLimit   uint64
	LockLimit   uint64
	OpenLimit   uint64
	Dup         string // libkrun's
	Times       string // QEMU's
	ReadOnly    map[string]bool
	Writable    string
	Attacks     map[string]string
	Effective   uint32
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func probe(args []string) {
	f := findings{StrayNext: "it is none, or not standard error"}
	var next, stderr unix.Stat_t
	if unix.Fstat(FirstFileFD+2, &next) == nil && unix.Fstat(2, &stderr) == nil && next.Dev == stderr.Dev && next.Ino == stderr.Ino {
		f.StrayNext = ""
	}
	for fd := FirstFileFD; fd < strayFD; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil {
			f.Memory = append(f.Memory, fd)
		}
	}
	entries, err := os.ReadDir("/")
	f.Root = []string{errText(err)}
	for _, e := range entries {
		f.Root = append(f.Root, e.Name())
	}
	f.Env = os.Environ()
	_, err = unix.FcntlInt(strayFD, unix.F_GETFD, 0)
	f.Stray = errText(err)
	f.PID = os.Getpid()
	if list, err := net.Interfaces(); err == nil {
		f.Interfaces = len(list)
	}
	_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	f.Socket = errText(err)
	f.Ptrace = errText(unix.PtraceAttach(1))
	f.Unshare = errText(unix.Unshare(unix.CLONE_NEWUSER))
	_, err = os.ReadFile(args[0])
	f.ReadSecret = errText(err)
	granted, err := os.ReadFile(args[1])
	f.ReadGranted = string(granted) + errText(err)
	f.WriteRO = errText(os.WriteFile(args[1], []byte("changed"), 0o600))
	f.WriteRW = errText(os.WriteFile(args[2], []byte("changed"), 0o600))
	f.NoNewPrivs, _ = unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &limit) == nil {
		f.CoreLimit = limit.Max
	}
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil {
		f.FileLimit = limit.Max
	}
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		f.LockLimit = limit.Max
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		f.OpenLimit = limit.Max
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if unix.Capget(&header, &caps[0]) == nil {
		f.Effective = caps[0].Effective | caps[1].Effective | caps[0].Permitted
	}
	_, err = unix.Dup(1)
	f.Dup = errText(err)
	_, err = unix.Times(new(unix.Tms))
	f.Times = errText(err)
	f.ReadOnly, f.Writable = make(map[string]bool), args[2]
	for _, path := range []string{"/", args[1], args[2]} {
		var st unix.Statfs_t
		f.ReadOnly[path] = unix.Statfs(path, &st) == nil && st.Flags&unix.ST_RDONLY != 0
	}
	var v victims
	if err := json.Unmarshal([]byte(args[3]), &v); err == nil {
		f.Attacks = attackAll(&v)
	}
	_ = json.NewEncoder(os.NewFile(FirstFileFD, "agent")).Encode(f)
}

// files are a secret next to what the VMM is granted.
func files(t *testing.T) (secret, readOnly, readWrite string) {
	t.Helper()
	dir := t.TempDir()
	for i, p := range []*string{&secret, &readOnly, &readWrite} {
		*p = filepath.Join(dir, fmt.Sprint("file", i))
		if err := os.WriteFile(*p, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return secret, readOnly, readWrite
}

func launch(t *testing.T, argv []string, readOnly, readWrite string) *Launch {
	t.Helper()
	agent, agentFD, err := StreamPair("agent")
	if err != nil {
		t.Fatal(err)
	}
	console, consoleFD, err := StreamPair("console")
	if err != nil {
		t.Fatal(err)
	}
	directories, _ := net.Pipe() // the VMM has no end of it
	return &Launch{
		agent: agent, dirs: directories, Console: console, Files: []*os.File{agentFD, consoleFD},
		Plan: Plan{
			Argv: argv, Env: []string{"ONLY=this"},
			ReadOnly:  append([]string{readOnly}, Libraries(argv[0])...),
			ReadWrite: []string{readWrite}, Devices: []string{"/dev/null"},
		},
	}
}

func exe(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func observe(t *testing.T, start func(*Launch), namespaces bool, recording *Recording) (findings, []string) {
	t.Helper()
	return observeAs(t, namespaces, func(l *Launch, _ []string) { start(l); l.Recording = recording })
}

// observeWith is observe without namespaces, for a changed launch and its program's arguments.
func observeWith(t *testing.T, change func(l *Launch, args []string)) (findings, []string) {
	t.Helper()
	return observeAs(t, false, change)
}

func observeAs(t *testing.T, namespaces bool, change func(l *Launch, args []string)) (findings, []string) {
	t.Helper()
	t.Setenv("SECRET_OF_THE_SUPERVISOR", "value")
	secret, ro, rw := files(t)
	// What a shell or a CI runner leaves open: no close-on-exec.
	open, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = open.Close(); _ = unix.Close(strayFD) })
	if err := unix.Dup2(int(open.Fd()), strayFD); err != nil {
		t.Fatal(err)
	}
	v, err := json.Marshal(makeVictims(t, secret, rw))
	if err != nil {
		t.Fatal(err)
	}
	l := launch(t, []string{exe(t), probeArg, secret, ro, rw, string(v)}, ro, rw)
	l.Plan.MaxFile = diskSize
	change(l, l.Plan.Argv[2:])
	log, err := newConsole("")
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.attempt(t.Context(), log, namespaces)
	closeAll(l.Files)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Error(err)
		}
	})
	var f findings
	line, err := bufio.NewReader(m.Agent()).ReadBytes('\n')
	if err != nil {
		t.Fatalf("read findings: %v; %v", err, m.Wait(t.Context()))
	}
	if err := json.Unmarshal(line, &f); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(rw)
	if err != nil || !strings.HasPrefix(string(got), "changed") {
		t.Errorf("the writable file holds %q (%v), want it changed", got, err)
	}
	return f, m.Confinement()
}

// victimArg makes the test's program a process of the user's.
const victimArg = "__victim-for-test"

// diskSize is the size of the disk that the attacks try to grow.
const diskSize = 1 << 20

// makeVictims starts a process and makes a segment of shared memory, which end with the test.
func makeVictims(t *testing.T, file, disk string) victims {
	t.Helper()
	cmd := exec.Command(exe(t), victimArg)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Kill(cmd.Process.Pid, 0); err != nil {
			t.Errorf("the user's other process: %v", err)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := os.Truncate(disk, diskSize); err != nil {
		t.Fatal(err)
	}
	key := os.Getpid()<<8 | 1
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	return victims{File: file, PID: cmd.Process.Pid, Shm: key, Disk: disk}
}
