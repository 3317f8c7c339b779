//go:build vmtest

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox"
)

// patience fails a test instead of letting it hang; nothing is timed by it.
const patience = 2 * time.Minute

func stateDirectory() string { return filepath.Join(scratch, "home") }

// subreaper makes what an msb that died leaves behind this process's child, so that it is seen.
var subreaper = sync.OnceValue(func() error {
	return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
})

// vm runs one command line of msb on QEMU, and fails the test when anything is left of it. Flags stand
// first, the guest's command after "--".
func vmRun(t *testing.T, args ...string) result {
	t.Helper()
	return vmCommand(t, command(t, nil, runArgs(args)...))
}

func runArgs(args []string) []string {
	return append([]string{"run", "--vm", "qemu", "--trust"}, args...)
}

// vmCommand runs msb to its end and looks at what it leaves.
func vmCommand(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	got := finish(t, cmd)
	nothingLeft(t, stateDirectory())
	if strings.Contains(got.err, "goroutine ") && got.code != exitAgent { // the guest's agent may show its own
		t.Errorf("a stack trace: %s", got.err)
	}
	return got
}

// want fails the test unless the command printed out, and ended with code.
func (r result) want(t *testing.T, code int, out string) {
	t.Helper()
	if r.code != code || r.out != out {
		t.Errorf("exit %d, printed %q and said %q; want %d and %q", r.code, r.out, r.err, code, out)
	}
}

// says fails the test unless msb failed with code and this in its sentence.
func (r result) says(t *testing.T, code int, words ...string) {
	t.Helper()
	for _, w := range words {
		if r.code != code || !strings.Contains(r.err, w) {
			t.Errorf("exit %d, printed %q and said %q; want %d and %q", r.code, r.out, r.err, code, w)
		}
	}
}

// nothingLeft looks for run directories, half-made files and processes.
func nothingLeft(t *testing.T, home string) {
	t.Helper()
	if left := leftovers(t, home); len(left) > 0 {
		t.Errorf("left in the state directory: %v", left)
	}
	if left := processesBelow(os.Getpid()); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// leftovers are the files in a state directory that no cache owns.
func leftovers(t *testing.T, home string) []string {
	t.Helper()
	var left []string
	for _, pattern := range []string{"run/*", "kept/*", "guest/.*", "kernel/.*", "images/tmp/*"} {
		found, err := filepath.Glob(filepath.Join(home, pattern))
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, found...)
	}
	return slices.DeleteFunc(left, func(f string) bool { return filepath.Base(f) == ".lock" })
}

// process is a line of the process table.
type process struct {
	pid, parent int
	name        string
}

func (p process) String() string { return fmt.Sprintf("%d (%s)", p.pid, p.name) }

// processesBelow are the living descendants of pid; a zombie holds nothing.
func processesBelow(pid int) []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is sound
	children := map[int][]process{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // ended meanwhile
		}
		begin, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
		rest := strings.Fields(string(b[end+1:]))
		if rest[0] == "Z" || rest[0] == "X" {
			continue
		}
		p := process{name: string(b[begin+1 : end])}
		p.pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(f)))
		p.parent, _ = strconv.Atoi(rest[1])
		children[p.parent] = append(children[p.parent], p)
	}
	var all []process
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, c := range children[todo[0]] {
			all = append(all, c)
			todo = append(todo, c.pid)
		}
	}
	return all
}

// eventually waits until ok is true, and fails with what was awaited otherwise.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// transcript collects what a running command writes, and can be waited on.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (tr *transcript) Write(p []byte) (int, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.Write(p)
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.text.String()
}

func (tr *transcript) await(t *testing.T, words string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q in the output", words), func() bool { return strings.Contains(tr.String(), words) })
}

// running is an msb that has not ended.
type running struct {
	*exec.Cmd
	out, err transcript
	ended    chan struct{}
}

// background starts msb on QEMU. It is killed with the test.
func background(t *testing.T, args ...string) *running {
	t.Helper()
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	r := &running{Cmd: command(t, nil, runArgs(args)...), ended: make(chan struct{})}
	r.Stdout, r.Stderr = &r.out, &r.err
	r.start(t)
	return r
}

func (r *running) start(t *testing.T) {
	t.Helper()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = r.Wait() // its code is looked at in wait
	}()
	t.Cleanup(func() { _ = r.Process.Kill(); <-r.ended })
}

func (r *running) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait returns what the user saw, once msb has ended.
func (r *running) wait(t *testing.T) result {
	t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		t.Fatalf("msb has not ended; it printed %q and said %q", r.out.String(), r.err.String())
	}
	return result{r.out.String(), r.err.String(), r.ProcessState.ExitCode()}
}

// otherHome is a state directory for tests that damage theirs; caches are made again in it.
func otherHome(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "home")
	return dir, []string{sandbox.EnvHome + "=" + dir}
}
