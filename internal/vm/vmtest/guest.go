//go:build linux

package vmtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/msb-project/msb/internal/vm"
)

// guestPackage is the first process of test guests.
const guestPackage = "github.com/msb-project/msb/internal/vm/vmtest/guest"

// Build compiles a package to a static program for this machine's kind of
// guest and returns its path. Additional arguments go to `go build`.
func Build(t testing.TB, pkg string, cgo bool, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", out}, args...), pkg)...)
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	if cgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, text)
	}
	return out
}

// shared is a root disk that all tests of one process use, read-only.
var shared struct {
	once sync.Once
	path string
}

// RootEnv names a ready-made root disk, for tests that run where there is no
// compiler: in the emulated host.
const RootEnv = "MSB_TEST_ROOT"

// Root returns the root disk of test guests. It is made once for each test
// process and removed with the directory dir, which TestMain makes.
func Root(t testing.TB, dir string) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.path = os.Getenv(RootEnv); shared.path != "" {
			return
		}
		path := filepath.Join(dir, "root.ext4")
		Ext4(t, Tree(t, map[string]string{"init": Build(t, guestPackage, false)}), path, 16)
		shared.path = path
	})
	if shared.path == "" {
		t.Fatal("the guest's root disk could not be made, see the first test that failed")
	}
	return shared.path
}

// Spec returns a small machine on the given root disk.
func Spec(t testing.TB, root string) vm.Spec {
	t.Helper()
	return vm.Spec{
		CPUs: 1, MemoryMiB: 256,
		Disks:      []vm.Disk{{Path: root, ReadOnly: true, ID: "root"}},
		ConsoleLog: filepath.Join(t.TempDir(), "console.log"),
	}
}

// Guest is a booted test guest.
type Guest struct {
	vm.Machine
	lines *bufio.Reader
}

// Boot starts a machine, waits until its first process is ready and ends it
// with the test.
func Boot(t testing.TB, b vm.Backend, spec vm.Spec) *Guest {
	t.Helper()
	g := GoOn(t, b, spec)
	m := g.Machine
	if got, err := g.read(); err != nil || got != "ready" {
		_ = m.Kill()
		t.Fatalf("guest said %q (%v), want ready; it ended with: %v; console:\n%s",
			got, err, m.Wait(t.Context()), m.ConsoleTail(4096))
	}
	return g
}

// GoOn is Boot for a machine that was saved, whose first process is ready.
func GoOn(t testing.TB, b vm.Backend, spec vm.Spec) *Guest {
	t.Helper()
	m, err := b.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			t.Errorf("kill: %v", err)
		}
	})
	return &Guest{Machine: m, lines: bufio.NewReader(m.Agent())}
}

func (g *Guest) read() (string, error) {
	line, err := g.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// Read reads the guest's next answer.
func (g *Guest) Read() (string, error) { return g.read() }

// Ask sends one command to the guest's first process and returns its answer.
func (g *Guest) Ask(t testing.TB, format string, args ...any) string {
	t.Helper()
	command := fmt.Sprintf(format, args...)
	g.tell(t, command)
	answer, err := g.read()
	if err != nil {
		t.Fatalf("answer to %q: %v\nconsole:\n%s", command, err, g.ConsoleTail(4096))
	}
	return answer
}

// tell sends one command and waits for nothing.
func (g *Guest) tell(t testing.TB, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(g.Agent(), command); err != nil {
		t.Fatalf("tell %q: %v", command, err)
	}
}
