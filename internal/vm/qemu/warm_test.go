//go:build linux && amd64

package qemu

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
	"github.com/msb-project/msb/internal/vm/vmm/vmmtest"
	"github.com/msb-project/msb/internal/vm/vmtest"
)

// warm is a backend with a cache of its own that shares the kernel of all tests.
func warm(t *testing.T) (*Backend, string) {
	t.Helper()
	if _, err := backend(t).kernel(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kernels, err := filepath.Glob(filepath.Join(scratch, "kernel-*"))
	if err != nil || len(kernels) == 0 {
		t.Fatal(kernels, err)
	}
	for _, k := range kernels {
		if err := os.Link(k, filepath.Join(dir, filepath.Base(k))); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{CacheDir: dir, Program: vmmtest.Program(t)}), dir
}

// warmSpec has a network device, and a disk that begins with text.
func warmSpec(t *testing.T, text string) vm.Spec {
	t.Helper()
	spec := suiteSpec(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, append([]byte(text), make([]byte, 1<<20-len(text))...), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Disks = append(spec.Disks, vm.Disk{Path: disk, ID: "second"})
	far, near, err := runner.StreamPair("link")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	spec.Net, spec.Warm = &vm.Net{FD: near, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}, true
	return spec
}

// templates are the saved machines of a cache.
func templates(t *testing.T, dir string) (saved, failed []string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, templatePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		switch filepath.Ext(path) {
		case failedSuffix:
			failed = append(failed, path)
		case "":
			saved = append(saved, path)
		}
	}
	return saved, failed
}

// TestI18_CopiesAreMachinesOfTheirOwn runs two copies of one saved machine: each has its own disk and memory. What an agent
// has to replace in them repeats.
func TestI18_CopiesAreMachinesOfTheirOwn(t *testing.T) {
	t.Parallel()
	b, dir := warm(t)
	var cards []string
	var memory []uint64
	for _, text := range []string{"one", "two"} {
		m := vmtest.Boot(t, b, warmSpec(t, text))
		if !m.Restored() {
			_, failed := templates(t, dir)
			for _, f := range failed {
				why, _ := os.ReadFile(f)
				t.Logf("%s", why)
			}
			t.Fatal("the machine was booted")
		}
		cards = append(cards, m.Ask(t, "read /sys/class/net/dummy0/address"))
		if got := m.Ask(t, "readdev /dev/vdb"); got != text {
			t.Errorf("its disk begins with %q, want %q", got, text)
		}
		if got := m.Ask(t, "writedev /dev/vdb %s", "mine-"+text); got != "written" {
			t.Errorf("it can't write: %s", got)
		}
		memory = append(memory, sealed(t, m.PID()))
		clockGoesOn(t, m)
	}
	if memory[0] != memory[1] {
		t.Error("the second copy has read the memory of its own, which the first had already")
	}
	if cards[0] != cards[1] || cards[0] == "" {
		t.Errorf("two copies have devices with the addresses %v: is it still needed to renew them?", cards)
	}
	if saved, failed := templates(t, dir); len(saved) != 1 || len(failed) > 0 {
		t.Errorf("saved %v, failed %v", saved, failed)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestI18_CopiesDrawTheSameUntilReseeded is the twin of what the agent does first in a machine that was loaded: nobody adds
// randomness to these, and their kernels go on with the state that was saved.
func TestI18_CopiesDrawTheSameUntilReseeded(t *testing.T) {
	t.Parallel()
	drawn := make(map[string]bool)
	for range 8 { // a kernel that was saved just before it reseeds itself, which it does each second so early, draws others
		b, _ := warm(t)
		for range 2 {
			m := vmtest.Boot(t, b, warmSpec(t, "x"))
			got := m.Ask(t, "read /proc/sys/kernel/random/uuid")
			if drawn[got] {
				return
			}
			if len(got) != len("01234567-89ab-cdef-0123-456789abcdef") {
				t.Fatalf("drew %q", got)
			}
			drawn[got] = m.Restored() // a busy machine may have booted it
		}
	}
	t.Errorf("no two copies drew the same: %v: is it still needed to reseed them?", drawn)
}

// clockGoesOn looks at the clock of a copy soon after it was loaded: it goes on from where the machine was saved, at the
// host's rate.
func clockGoesOn(t *testing.T, m *vmtest.Guest) {
	t.Helper()
	m.ClockKeepsTime(t)
	if up, err := strconv.ParseInt(m.Ask(t, "now"), 10, 64); err != nil || up <= 0 || time.Duration(up) > time.Minute {
		t.Errorf("the copy is up for %s (%v)", time.Duration(up), err)
	}
}

// sealed looks at what the VMM holds: nobody can write to the memory and the state that other copies may be made from. It
// returns the memory's inode.
func sealed(t *testing.T, pid int) (inode uint64) {
	t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found int
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if to, err := os.Readlink(path); err != nil || !strings.Contains(to, "memfd:msb-") {
			continue
		}
		found++
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{1}, 0); err == nil {
			t.Errorf("descriptor %s can be written to", e.Name())
		}
		if _, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Errorf("descriptor %s can be mapped for writing", e.Name())
		}
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err == nil && st.Size > maxStateBytes {
			inode = st.Ino
		}
		_ = f.Close()
	}
	if found == 0 || inode == 0 {
		t.Error("the VMM holds no memory of ours")
	}
	return inode
}

// TestI18_SavedMachinesAreNamedForWhatTheyHold: a copy runs the programs of the machine that was saved and knows its sizes. What
// is a sandbox's own makes no other name.
func TestI18_SavedMachinesAreNamedForWhatTheyHold(t *testing.T) {
	t.Parallel()
	_, cache := warm(t)
	prefix, disks := t.TempDir(), t.TempDir()
	binary, module := filepath.Join(prefix, "bin", "qemu"), filepath.Join(prefix, "lib", "qemu", "accel-tcg-x86_64.so")
	agent, second, third := filepath.Join(disks, "agent"), filepath.Join(disks, "second"), filepath.Join(disks, "third")
	for _, path := range []string{binary, module, agent, second, third} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("content"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	kvm, processor, unknown := vm.ErrUnsupported, "a processor", error(nil)
	b := func() *Backend { // as it is in a new process
		return New(Config{
			CacheDir: cache, find: func() (string, error) { return binary, nil }, probeKVM: func() error { return kvm },
			kvmProcessor: func() (string, error) { return processor, unknown },
		})
	}
	kernel, err := b().kernel()
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(kernel)
	if err == nil { // the file is that of all tests
		err = errors.Join(os.Remove(kernel), os.WriteFile(kernel, image, 0o400))
	}
	if err != nil {
		t.Fatal(err)
	}
	touch := func(path string) func(*vm.Spec) error {
		return func(*vm.Spec) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) }
	}
	for _, tt := range []struct { // each change is of the files as the one before left them
		what   string
		change func(*vm.Spec) error
		same   bool
	}{
		{"nothing", func(*vm.Spec) error { return nil }, true},
		{"what is on a disk", func(*vm.Spec) error { return os.WriteFile(second, []byte("CONTENT"), 0o600) }, true},
		{"another disk as large", func(s *vm.Spec) error { s.Disks[1].Path, s.Disks[1].ID = third, "third"; return nil }, true},
		{"its card", func(s *vm.Spec) error { s.Net.MAC = net.HardwareAddr{2, 0, 0, 0, 0, 7}; return nil }, true},
		{"the agent's disk", touch(agent), false},
		{"the agent's disk, of the same time", func(*vm.Spec) error {
			return errors.Join(os.WriteFile(agent+".new", []byte("CONTENT"), 0o600), touch(agent+".new")(nil), os.Rename(agent+".new", agent))
		}, false},
		{"QEMU", touch(binary), false},
		{"a module of QEMU's", touch(module), false},
		{"the kernel", touch(kernel), false},
		{"a disk's size", func(*vm.Spec) error { return os.Truncate(second, 4096) }, false},
		{"a disk less", func(s *vm.Spec) error { s.Disks = s.Disks[:1]; return nil }, false},
		{"a disk that is only read", func(s *vm.Spec) error { s.Disks[1].ReadOnly = true; return nil }, false},
		{"CPUs", func(s *vm.Spec) error { s.CPUs++; return nil }, false},
		{"memory", func(s *vm.Spec) error { s.MemoryMiB++; return nil }, false},
		{"the command line", func(s *vm.Spec) error { s.Cmdline = append(s.Cmdline, "quiet"); return nil }, false},
		{"no card", func(s *vm.Spec) error { s.Net = nil; return nil }, false},
		{"the processor of KVM's guests, by emulation", func(*vm.Spec) error { processor = "another"; return nil }, true},
		{"KVM", func(*vm.Spec) error { kvm = nil; return nil }, false},
		{"the processor of KVM's guests", func(*vm.Spec) error { processor = "a third"; return nil }, false},
	} {
		name := func(change func(*vm.Spec) error) string {
			spec := vm.Spec{CPUs: 1, MemoryMiB: 256, Disks: []vm.Disk{{Path: agent, ReadOnly: true, ID: "agent"}, {Path: second, ID: "second"}}, Net: &vm.Net{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 9}}}
			err := change(&spec)
			path := ""
			if err == nil {
				path, err = b().templatePath(&spec)
			}
			if err != nil {
				t.Fatal(tt.what, err)
			}
			return path
		}
		before := name(func(*vm.Spec) error { return nil })
		if after := name(tt.change); (before == after) != tt.same {
			t.Errorf("with %s changed, the same name: %t", tt.what, before == after)
		}
	}
	unknown = errors.New("it gives no answer")
	spec := vm.Spec{CPUs: 1, MemoryMiB: 256, Disks: []vm.Disk{{Path: agent, ReadOnly: true, ID: "agent"}}}
	if path, err := b().templatePath(&spec); !errors.Is(err, unknown) {
		t.Errorf("a machine on a processor that nobody knows is named %q (%v)", path, err)
	}
}

// TestMachinesOnKVMNeedAMeasuredClock: what a saved machine takes for the frequency of its TSC must be that of its copies'.
func TestMachinesOnKVMNeedAMeasuredClock(t *testing.T) {
	t.Parallel()
	h := &fakeHost{khz: 0}
	b := &Backend{tsc: &tscMeter{tsc: h.tsc, now: h.now, sleep: func(d time.Duration) { h.at += d }}, accel: func() accel { return onKVM }}
	if _, err := b.clock(); !errors.Is(err, errNoFrequency) {
		t.Errorf("%v, want %v", err, errNoFrequency)
	}
	b.accel = func() accel { return emulated }
	if khz, err := b.clock(); khz != 0 || err != nil {
		t.Errorf("by emulation: %d kHz, %v", khz, err)
	}
}

// TestDamagedTemplatesAreMadeAgain damages the saved machine in the cache in every way that reading must notice.
func TestDamagedTemplatesAreMadeAgain(t *testing.T) {
	t.Parallel()
	b, dir := warm(t)
	boot := func() bool {
		m := vmtest.Boot(t, b, warmSpec(t, "text"))
		defer func() { _ = m.Kill() }()
		if got := m.Ask(t, "readdev /dev/vdb"); got != "text" {
			t.Errorf("its disk begins with %q", got)
		}
		return m.Restored()
	}
	if !boot() {
		t.Fatal("the machine was booted")
	}
	saved, _ := templates(t, dir)
	if len(saved) != 1 {
		t.Fatal(saved)
	}
	if err := os.Chmod(saved[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(saved[0], 5<<20); err != nil {
		t.Fatal(err)
	}
	if !boot() {
		t.Error("a saved machine that was cut was not made again")
	}
	// One that can't be saved at all is booted, and not tried again at once.
	if err := os.Remove(saved[0]); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if boot() {
		t.Error("a machine was saved while another process saves one")
	}
	if _, failed := templates(t, dir); len(failed) > 0 {
		t.Errorf("%v: another process's work is no failure", failed)
	}
}

// TestBrokenCopiesAreBootedInstead gives QEMU a state that it can't load.
func TestBrokenCopiesAreBootedInstead(t *testing.T) {
	t.Parallel()
	b, dir := warm(t)
	spec := warmSpec(t, "text")
	path, err := b.templatePath(&spec)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	broken := &template{Greeting: []byte("ready\n"), State: []byte("this is no state"), TSC: b.tsc.frequency()}
	if err := broken.writeTo(&out, bytes.NewReader(nil)); err != nil {
		t.Fatal(err)
	}
	err = cachefile.Ensure(path, func(w io.Writer) error { _, err := w.Write(out.Bytes()); return err })
	if err != nil {
		t.Fatal(err)
	}
	m := vmtest.Boot(t, b, spec)
	if got := m.Ask(t, "readdev /dev/vdb"); got != "text" || m.Restored() {
		t.Errorf("its disk begins with %q, restored %v", got, m.Restored())
	}
	saved, failed := templates(t, dir)
	if len(saved) != 0 || len(failed) != 1 {
		t.Errorf("saved %v, failed %v; want the broken one gone and remembered", saved, failed)
	}
}
