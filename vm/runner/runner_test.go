//go:build linux

package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/vm"
)

// probeArg makes the test's program stand in for a VMM: it tries what a
// broken-out one would and reports on the agent's descriptor.
const probeArg = "__probe-for-test"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Verb:
			os.Exit(Main())
		case probeArg:
			probe(os.Args[2:])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// strayFD is far above what the runtime opens.
const strayFD = 77

// findings is what the stand-in reports.
type findings struct {
	// Stray is the error of looking at a descriptor that nobody handed over.
	Stray       string
	Root        []string
	Env         []string
	Interfaces  int
	PID         int
	Socket      string
	Pair        string
	Ptrace      string
	Unshare     string
	ReadSecret  string
	ReadGranted string
	WriteRO     string
	WriteRW     string
	NoNewPrivs  int
	CoreLimit   uint64
	Effective   uint32
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func probe(args []string) {
	var f findings
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
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	f.Pair = errText(err)
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
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if unix.Capget(&header, &caps[0]) == nil {
		f.Effective = caps[0].Effective | caps[1].Effective | caps[0].Permitted
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
	return &Launch{
		Agent: agent, Console: console, Files: []*os.File{agentFD, consoleFD},
		Plan: Plan{
			Argv: argv, Env: []string{"ONLY=this"},
			ReadOnly:  append([]string{readOnly}, SystemLibraries("")...),
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

func observe(t *testing.T, namespaces bool) (findings, []string) {
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
	l := launch(t, []string{exe(t), probeArg, secret, ro, rw}, ro, rw)
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
	if err != nil || string(got) != "changed" {
		t.Errorf("the writable file holds %q (%v), want it changed", got, err)
	}
	return f, m.Confinement()
}

func TestI8_ConfinedProcessReachesNothingButItsFiles(t *testing.T) {
	for _, namespaces := range []bool{true, false} {
		t.Run(fmt.Sprintf("namespaces=%v", namespaces), func(t *testing.T) {
			f, confinement := observe(t, namespaces)
			if f.ReadGranted != "content" {
				t.Errorf("reading the granted file: %s", f.ReadGranted)
			}
			for what, got := range map[string]string{
				"open a socket": f.Socket, "ptrace": f.Ptrace, "unshare": f.Unshare,
				"read an ungranted file": f.ReadSecret, "write a read-only file": f.WriteRO,
				"use a descriptor that it was not handed": f.Stray,
			} {
				if got == "" {
					t.Errorf("the confined process could %s", what)
				}
			}
			if f.Pair != "" || f.WriteRW != "" {
				t.Errorf("what a VMM needs was refused: socketpair %q, write %q", f.Pair, f.WriteRW)
			}
			if !slices.Equal(f.Env, []string{"ONLY=this"}) {
				t.Errorf("its environment is %q", f.Env)
			}
			if f.NoNewPrivs != 1 || f.CoreLimit != 0 || f.Effective != 0 {
				t.Errorf("no_new_privs %d, core limit %d, capabilities %#x; want 1, 0, 0", f.NoNewPrivs, f.CoreLimit, f.Effective)
			}
			if namespaces && (f.PID != 1 || slices.Contains(f.Root, "root") || slices.Contains(f.Root, "home")) {
				t.Errorf("pid %d, root %q; want pid 1 and a root of its own", f.PID, f.Root)
			}
			if got := strings.Contains(strings.Join(confinement, " "), "namespaces"); got != namespaces {
				t.Errorf("confinement %q, namespaces %v", confinement, namespaces)
			}
		})
	}
}

func TestProgramThatIsMissingIsReported(t *testing.T) {
	t.Parallel()
	_, ro, rw := files(t)
	l := launch(t, []string{filepath.Join(t.TempDir(), "no-such-vmm")}, ro, rw)
	if m, err := l.Start(t.Context()); !errors.Is(err, vm.ErrVMM) || m != nil {
		t.Fatalf("start: %v, %v; want ErrVMM", m, err)
	}
	if _, err := l.Agent.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the agent's end is left open: %v", err)
	}
}

func TestDiskThatIsMissingIsReported(t *testing.T) {
	t.Parallel()
	_, ro, _ := files(t)
	l := launch(t, []string{exe(t), probeArg}, ro, filepath.Join(t.TempDir(), "no-such-disk"))
	if _, err := l.Start(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("start: %v, want ErrNotExist", err)
	}
}

func TestStartIsGivenUpWithItsContext(t *testing.T) {
	t.Parallel()
	_, ro, rw := files(t)
	l := launch(t, []string{exe(t), probeArg}, ro, rw)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("start: %v, want canceled", err)
	}
}

func TestPlanOverAPipesBufferIsRefused(t *testing.T) {
	t.Parallel()
	if _, err := PipeWith(make([]byte, maxPlanBytes+1)); err == nil {
		t.Error("a plan that would block its writer was accepted")
	}
}

func TestEverySentinelCrossesTheStatusPipe(t *testing.T) {
	t.Parallel()
	for code, want := range codes {
		err := fmt.Errorf("some detail: %w", want)
		got := status{Error: err.Error(), Code: codeOf(err)}.err()
		if !errors.Is(got, want) || got.Error() != err.Error() {
			t.Errorf("%s: got %v, want %v", code, got, err)
		}
	}
	if got := (status{Error: "x"}).err(); !errors.Is(got, vm.ErrVMM) {
		t.Errorf("an error without a code: %v, want ErrVMM", got)
	}
}

func TestConsoleKeepsItsTailWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	c, err := newConsole("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	c.copyFrom(io.LimitReader(strings.NewReader("hello console"), 100))
	if got := c.Tail(7); got != "console" {
		t.Errorf("tail %q", got)
	}
	if err := c.Close(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("close: %v, want ENOSPC", err)
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	t.Parallel()
	for _, step := range []int{1, 3, 10, 25, 1000} {
		tl := tail{max: 10}
		var all strings.Builder
		for i := range 50 {
			part := strings.Repeat(string(rune('a'+i%26)), step)
			all.WriteString(part)
			tl.write([]byte(part))
			text := all.String()
			if got, want := tl.last(10), text[max(0, len(text)-10):]; got != want {
				t.Fatalf("step %d: tail %q, want %q", step, got, want)
			}
			if len(tl.buf) > 2*tl.max {
				t.Fatalf("step %d: %d bytes are held", step, len(tl.buf))
			}
		}
		if got := tl.last(-1); got != "" {
			t.Errorf("last(-1) = %q", got)
		}
	}
}
