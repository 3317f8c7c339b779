//go:build linux

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Verb:
			if env := os.Environ(); len(env) > 0 { // see TestI8_RunnerInheritsNoEnvironment
				fmt.Fprintf(os.Stderr, "the runner inherited %q\n", env)
				os.Exit(1)
			}
			_ = unix.Dup2(2, FirstFileFD+2) // behind those that a VMM gets here
			os.Exit(Main())
		case probeArg:
			probe(os.Args[2:])
			os.Exit(0)
		case greedyArg:
			greedy(os.Args[2])
			os.Exit(0)
		case victimArg:
			select {} // until it is killed, which no attack may do
		case parentArg:
			parent(os.Args[2:])
			os.Exit(0)
		case supervisorArg:
			fmt.Println(supervisor(os.Args[2], os.Args[3], os.Args[4], os.Args[5]))
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// TestI8_RunnerInheritsNoEnvironment: what becomes the VMM holds nothing of the supervisor's environment before it is
// confined either. TestMain looks, as the runner.
func TestI8_RunnerInheritsNoEnvironment(t *testing.T) {
	t.Setenv("MSB_TEST_TOKEN", "the supervisor's")
	eachProgram(t, func(t *testing.T, start func(*Launch)) {
		f, _ := observe(t, start, false, nil)
		if !slices.Equal(f.Env, []string{"ONLY=this"}) {
			t.Errorf("the program's environment is %q", f.Env)
		}
	})
}

func TestI8_ConfinedProcessesReachOnlyTheirFiles(t *testing.T) {
	eachProgram(t, func(t *testing.T, start func(*Launch)) {
		for _, namespaces := range []bool{true, false} {
			f, confinement := observe(t, start, namespaces, nil)
			if f.ReadGranted != "content" {
				t.Errorf("reading the granted file: %s", f.ReadGranted)
			}
			for what, got := range map[string]string{
				"open a socket": f.Socket, "ptrace": f.Ptrace, "unshare": f.Unshare,
				"read an ungranted file": f.ReadSecret, "write a read-only file": f.WriteRO,
				"use a descriptor that it was not handed": f.Stray, "use the one behind those that it was": f.StrayNext,
			} {
				if got == "" {
					t.Errorf("the confined process could %s", what)
				}
			}
			if f.WriteRW != "" {
				t.Errorf("what a VMM needs was refused: write %q", f.WriteRW)
			}
			if !slices.Equal(f.Env, []string{"ONLY=this"}) {
				t.Errorf("its environment is %q", f.Env)
			}
			for _, a := range attacks {
				result, tried := f.Attacks[a.name]
				if !tried || result == "" {
					t.Errorf("the confined process could: %s", a.name)
				}
				t.Logf("%s: %s", a.name, result)
			}
			if f.FileLimit != diskSize || f.LockLimit != 0 {
				t.Errorf("files of %d bytes and %d bytes of locked memory are allowed; want %d and 0", f.FileLimit, f.LockLimit, diskSize)
			}
			if f.OpenLimit == 0 || f.OpenLimit > maxOpenFiles {
				t.Errorf("%d open files are allowed, want at most %d", f.OpenLimit, maxOpenFiles)
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
			if len(f.Memory) > 0 {
				t.Errorf("descriptors %d lead to files without a name", f.Memory)
			}
			if t.Failed() {
				t.Fatalf("namespaces=%v", namespaces)
			}
		}
	})
}

// TestI8_HandedFilesWithoutANameAreFound shows that the test above would find the program's own.
func TestI8_HandedFilesWithoutANameAreFound(t *testing.T) {
	f, _ := observeWith(t, func(l *Launch, _ []string) {
		memory, err := ofFile(exe(t)).sealed()
		if err != nil {
			t.Fatal(err)
		}
		l.Program, l.Files = vmmtest.Program(t), append(l.Files, memory)
	})
	if !slices.Contains(f.Memory, FirstFileFD+2) {
		t.Errorf("descriptors %d lead to files without a name, want %d among them", f.Memory, FirstFileFD+2)
	}
}

// TestI8_AttacksWorkWithoutTheFilter shows that the attacks above are real: with a filter that refuses
// nothing, and no namespaces, those that nothing else prevents succeed.
func TestI8_AttacksWorkWithoutTheFilter(t *testing.T) { eachProgram(t, attacksWork) }

func attacksWork(t *testing.T, start func(*Launch)) {
	r := new(Recording)
	f, confinement := observe(t, start, false, r)
	// Kernels without them refuse these too: what counts is that the filter does.
	for name, nr := range map[string]uint32{"x32": x32Bit | unix.SYS_GETPID, "io_uring": unix.SYS_IO_URING_SETUP} {
		if (name != "x32" || runtime.GOARCH == "amd64") && r.Calls()[Refused{Number: nr}] == 0 {
			t.Errorf("the filter lets %s pass", name)
		}
	}
	for _, a := range attacks {
		if result := f.Attacks[a.name]; a.filterOnly && result != "" {
			t.Errorf("%s: %s, want it to work", a.name, result)
		}
	}
	if landlockABI() >= 3 {
		for _, name := range []string{"read", "unlink", "rename", "link", "symlink", "mkdir", "mknod", "truncate", "execute another program"} {
			if f.Attacks[name] == "" {
				t.Errorf("Landlock lets it %s", name)
			}
		}
	}
	for _, name := range []string{"connect by TCP", "bind by TCP"} {
		if landlockABI() >= 4 && f.Attacks[name] == "" {
			t.Errorf("Landlock lets it %s", name)
		}
	}
	if landlockABI() >= 6 && f.Attacks["kill"] == "" {
		t.Error("Landlock lets it kill")
	}
	if !strings.Contains(strings.Join(confinement, " "), "refuses nothing") {
		t.Errorf("confinement %q doesn't say that nothing is refused", confinement)
	}
}

// TestI8_NamespacesHoldWithoutTheFilter looks at what the namespaces alone keep away.
func TestI8_NamespacesHoldWithoutTheFilter(t *testing.T) { eachProgram(t, namespacesHold) }

func namespacesHold(t *testing.T, start func(*Launch)) {
	f, _ := observe(t, start, true, new(Recording))
	if f.Socket != "" || f.Interfaces != 1 {
		t.Errorf("%d interfaces (socket: %q), want the loopback alone", f.Interfaces, f.Socket)
	}
	for _, name := range []string{"kill", "tkill", "prlimit", "ptrace", "pidfd_open", "shmget", "chmod", "utimensat", "read"} {
		if f.Attacks[name] == "" {
			t.Errorf("in its namespaces it could: %s", name)
		}
	}
	for path, readOnly := range f.ReadOnly {
		if want := path != f.Writable; readOnly != want {
			t.Errorf("%s is mounted read-only: %v, want %v", path, readOnly, want)
		}
	}
}

// TestOversizedDisksAreAnError writes beyond the largest disk with a program that has no handler
// for the signal which that sends.
func TestOversizedDisksAreAnError(t *testing.T) {
	t.Parallel()
	dd, err := exec.LookPath("dd")
	if err == nil {
		dd, err = filepath.EvalSymlinks(dd)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, ro, rw := files(t)
	l := launch(t, []string{dd, "if=" + ro, "of=" + rw, "bs=1", "count=1", "seek=1M", "conv=notrunc"}, ro, rw)
	l.Plan.MaxFile = diskSize
	m, err := l.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "File too large") {
		t.Errorf("it ended with %v, want an error of its own: File too large", err)
	}
	if info, err := os.Stat(rw); err != nil || info.Size() > diskSize {
		t.Errorf("the disk has %d bytes (%v)", info.Size(), err)
	}
}

func TestI8_EachVMMHasItsOwnList(t *testing.T) {
	for _, vmm := range []VMM{QEMU, Libkrun} {
		f, _ := observeWith(t, func(l *Launch, _ []string) { l.Program, l.Plan.VMM = vmmtest.Program(t), vmm })
		if (f.Dup == "") != (vmm == Libkrun) || (f.Times == "") != (vmm == QEMU) {
			t.Errorf("VMM %d: dup %q, times %q", vmm, f.Dup, f.Times)
		}
		for _, a := range attacks {
			if f.Attacks[a.name] == "" {
				t.Errorf("VMM %d: the confined process could: %s", vmm, a.name)
			}
		}
	}
}

func TestProgramThatIsMissingIsReported(t *testing.T) {
	t.Parallel()
	_, ro, rw := files(t)
	l := launch(t, []string{filepath.Join(t.TempDir(), "no-such-vmm")}, ro, rw)
	if m, err := l.Start(t.Context()); !errors.Is(err, vm.ErrVMM) || m != nil {
		t.Fatalf("start: %v, %v; want ErrVMM", m, err)
	}
	if _, err := l.agent.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
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

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, ro, rw := files(t)
	l := launch(t, []string{exe(t), probeArg}, ro, rw)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("start: %v, want canceled", err)
	}
}

func TestOverlongPlansAreRefused(t *testing.T) {
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

func TestFullDisksKeepTheConsoleTail(t *testing.T) {
	t.Parallel()
	c, err := newConsole("/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	c.copyFrom(io.LimitReader(strings.NewReader("hello console"), 100))
	if got := c.lastLines(7); got != "console" {
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
