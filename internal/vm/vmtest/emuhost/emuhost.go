//go:build linux

package emuhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/qemu"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// The machine: with one CPU the inner guest hangs, and with less memory
// libkrun's inner guest of 512 MiB does not fit beside the tmpfs.
const (
	cpus      = 2
	memoryMiB = 2048
)

// Env is set for programs in an emulated host.
const Env = "MSB_EMULATED_HOST"

// libDir is where the host has libkrun and libkrunfw; vm.LibDirEnv points there.
const libDir = "/usr/lib/msb"

// Host is a booted emulated host.
type Host struct {
	machine vm.Machine
	lines   *bufio.Reader
	end     func() error // kills the machine, once
}

// Start boots a host that holds the given files, path in the host to path here,
// together with the libraries that they need, libkrun, libkrunfw and busybox as
// /bin/sh and /bin/busybox. The test's program must answer runner.Verb, as
// hypervisors.MaybeRun does in TestMain. The host ends with the test.
func Start(t testing.TB, files map[string]string) *Host {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "host.ext4")
	tree := vmtest.Tree(t, contents(t, files))
	vmtest.Ext4(t, tree, root, treeMiB(t, tree)+16)
	if err := os.RemoveAll(tree); err != nil {
		t.Fatal(err)
	}
	backend := qemu.New(qemu.Config{CacheDir: filepath.Join(dir, "cache"), NestedVirtualisation: true})
	m, err := backend.Start(t.Context(), vm.Spec{
		CPUs: cpus, MemoryMiB: memoryMiB,
		Disks:      []vm.Disk{{Path: root, ReadOnly: true, ID: "root"}},
		ConsoleLog: filepath.Join(dir, "console.log"),
		// Timers at ticks alone interrupt the inner guest less often; see ErrFrozen.
		Cmdline: []string{"highres=off"},
	})
	if err != nil {
		t.Fatalf("start the emulated host: %v", err)
	}
	h := &Host{machine: m, lines: bufio.NewReader(m.Agent()), end: sync.OnceValue(m.Kill)}
	t.Cleanup(func() {
		if err := h.end(); err != nil {
			t.Errorf("end the emulated host: %v", err)
		}
	})
	for _, step := range []struct{ say, want string }{{"", "ready"}, {"host", "host"}} {
		if got, err := h.ask(step.say); err != nil || got != step.want {
			t.Fatalf("the emulated host said %q (%v), want %q; console:\n%s", got, err, step.want, m.ConsoleTail(4096))
		}
	}
	return h
}

// contents adds to the files what every host has.
func contents(t testing.TB, files map[string]string) map[string]string {
	t.Helper()
	all := map[string]string{"/init": vmtest.Build(t, "github.com/msb-project/msb/internal/vm/vmtest/guest", false)}
	for _, lib := range []struct {
		soname  string
		missing error
	}{{vm.Libkrun, vm.ErrLibkrunMissing}, {vm.Libkrunfw, vm.ErrLibkrunfwMissing}} {
		path, err := vm.FindLibrary(lib.soname, lib.missing)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Join(libDir, lib.soname)] = path
	}
	for _, name := range []string{"/bin/busybox", "/bin/sh"} {
		all[name] = "/bin/busybox" // package busybox-static
	}
	for to, from := range files {
		all[to] = from
	}
	for _, from := range all {
		for _, lib := range vmtest.Libraries(t, from) {
			all[lib] = lib
		}
	}
	return all
}

func treeMiB(t testing.TB, tree string) int {
	t.Helper()
	var bytes int64
	err := filepath.Walk(tree, func(_ string, info os.FileInfo, err error) error {
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return int(bytes>>20) + 1
}

// ask sends one line, if there is one, and returns the answer.
func (h *Host) ask(line string) (string, error) {
	if line != "" {
		if _, err := fmt.Fprintln(h.machine.Agent(), line); err != nil {
			return "", err
		}
	}
	answer, err := h.lines.ReadString('\n')
	return strings.TrimSuffix(answer, "\n"), err
}

// past is a deadline that has passed: it makes a blocked read return.
var past = time.Unix(1, 0)

// Try runs a program in the host and returns what it wrote, stdout and stderr together, and its exit code. Environment
// assignments (NAME=value) may stand before the program, as in a shell. One program runs at a time. After an error the
// host can only be ended.
func (h *Host) Try(ctx context.Context, command ...string) (output string, exit int, err error) {
	return h.run(ctx, command)
}

// End ends the host before the test does.
func (h *Host) End() error { return h.end() }

// RetriesEnv names a file to which each retry is added as a line; make test-vm counts them.
const RetriesEnv = "MSB_TEST_RETRIES"

// Retried notes that something in an emulated host, or the host itself, had to be tried again.
func Retried(t testing.TB, why string) {
	t.Helper()
	t.Logf("tried again: %s", why)
	path := os.Getenv(RetriesEnv)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		line, _, _ := strings.Cut(why, "\n")
		_, err = fmt.Fprintf(f, "%s: %s\n", t.Name(), line)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Errorf("note a retry: %v", err)
	}
}

// attempts is how often a host is booted for one program.
const attempts = 12

// silence is how much of a processor's time a host that runs a program may take without a word: it says every second of
// its own clock that it runs, which takes one to five seconds of a processor's. On a busy machine they are many more of
// the clock's.
const silence = 20 * time.Second

// ErrFrozen is a host that no longer runs. QEMU 7.2 delivers an interrupt to a nested guest a second time
// now and then, while the guest handles it. A guest that holds a lock then waits for itself; each PAUSE of
// that loop leaves QEMU's own, so that the clock, which counts instructions, stands nearly still for the
// whole host.
var ErrFrozen = errors.New("the emulation stands still")

// RunFresh boots a host and runs one program in it, as Hosts.Run does.
func RunFresh(t testing.TB, files map[string]string, limit time.Duration, command ...string) (output string, exit int) {
	t.Helper()
	return NewHosts(t, files).Run(t, limit, command...)
}

// Hosts are emulated hosts that hold the same files, one after the other.
type Hosts struct {
	t     testing.TB // they end with it
	files map[string]string
	host  *Host // nil before the first and after one that stands still
}

// NewHosts boots none yet; see Start for the files.
func NewHosts(t testing.TB, files map[string]string) *Hosts { return &Hosts{t: t, files: files} }

// Run runs one program. A host whose emulation stands still, or that gives no answer within limit, is ended, and another one
// booted; what the program answers counts, whatever it is.
func (s *Hosts) Run(t testing.TB, limit time.Duration, command ...string) (output string, exit int) {
	t.Helper()
	for i := range attempts {
		if s.host == nil {
			s.host = Start(s.t, s.files)
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		output, exit, err := s.host.run(ctx, command)
		frozen := ctx.Err() != nil || errors.Is(err, ErrFrozen)
		cancel()
		if err == nil {
			return output, exit
		}
		if !frozen {
			t.Fatal(err)
		}
		Retried(t, fmt.Sprintf("emulated host %d of %d gave no answer: %v", i+1, attempts, err))
		_ = s.host.end() // Start's cleanup reports its error
		s.host = nil
	}
	t.Fatalf("%d emulated hosts gave no answer", attempts)
	return "", 0
}

func (h *Host) run(ctx context.Context, command []string) (output string, exit int, err error) {
	env := []string{"PATH=/bin:/usr/bin", "HOME=/tmp", vm.LibDirEnv + "=" + libDir, Env + "=1"}
	for len(command) > 0 && strings.Contains(command[0], "=") {
		env, command = append(env, command[0]), command[1:]
	}
	raw, err := json.Marshal(map[string]any{"Argv": command, "Env": env})
	if err != nil {
		return "", 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := watchSilence(func() time.Duration { return processorTime(h.machine.PID()) }, silence, func() { cancel(ErrFrozen) })
	defer alive.stop()
	stop := context.AfterFunc(ctx, func() { _ = h.machine.Agent().SetDeadline(past) })
	defer stop()
	text, err := h.ask("run " + string(raw))
	for err == nil && text == "alive" {
		alive.heard()
		text, err = h.ask("")
	}
	if err != nil {
		return "", 0, fmt.Errorf("run %q in the emulated host: %w (%w); console:\n%s", command, err, context.Cause(ctx), h.machine.ConsoleTail(4096))
	}
	var answer struct {
		Output, Error string
		Exit          int
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Error != "" {
		return "", 0, fmt.Errorf("run %q in the emulated host: %s (%w), answer %q", command, answer.Error, err, text)
	}
	return answer.Output, answer.Exit, nil
}
