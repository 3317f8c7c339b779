package qemu

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/msb-project/msb/internal/cachefile"
	"github.com/msb-project/msb/internal/lazyregexp"
	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// Config is what a Backend is made with.
type Config struct {
	// CacheDir is where the guest's kernel is kept, made when missing.
	CacheDir string
	// NestedVirtualisation emulates a CPU whose guest can run guests of its
	// own, whether or not there is KVM. All CPUs share one host thread and a
	// clock that counts instructions: with a thread for each CPU, QEMU 7.2's
	// nested guests hang on a busy host, and on the real clock their timers
	// fire faster than emulation serves them. Time inside is then the number
	// of instructions, whatever the host's load.
	NestedVirtualisation bool
	// Program is what the VMM's process starts in; nil means the program that runs.
	Program runner.Program
	// record records the VMM's system calls instead of refusing any; nil refuses.
	record *runner.Recording
	// find finds QEMU, probeKVM tells whether KVM is usable, and kvmProcessor names the processor that KVM gives to
	// guests; nil means vm.FindQEMU, vm.ProbeKVM and the function of that name.
	find         func() (string, error)
	probeKVM     func() error
	kvmProcessor func() (string, error)
}

// Backend starts machines in QEMU.
type Backend struct {
	config Config
	tsc    *tscMeter
	accel  func() accel
}

var _ vm.Backend = (*Backend)(nil)

// New returns the backend. Nothing but the time is looked at before Probe or Start.
func New(c Config) *Backend {
	if c.find == nil {
		c.find = vm.FindQEMU
	}
	if c.probeKVM == nil {
		c.probeKVM = vm.ProbeKVM
	}
	// One answer for all that is started: a state that was saved on KVM is loaded on KVM.
	return &Backend{config: c, tsc: newTSCMeter(), accel: sync.OnceValue(c.accel)}
}

// accel is how machines of this host run.
func (c *Config) accel() accel {
	switch {
	case c.NestedVirtualisation:
		return emulatedInTurn
	case c.probeKVM() == nil:
		return onKVM
	}
	return emulated
}

// Name implements vm.Backend.
func (b *Backend) Name() string { return "qemu" }

var errNotAMD64 = fmt.Errorf("%w: the QEMU backend boots x86-64 guests on x86-64 Linux only", vm.ErrUnsupported)

// Probe implements vm.Backend.
func (b *Backend) Probe(ctx context.Context) vm.Report {
	if err := supported(); err != nil {
		return vm.Report{Note: err.Error(), Checks: []vm.Check{vm.Missing("qemu", true, err)}}
	}
	version, qemuCheck := b.checkQEMU(ctx)
	kvm := b.config.probeKVM()
	r := vm.Report{Checks: []vm.Check{qemuCheck, vm.CheckLibkrunfw(), vm.CheckKVM(kvm, false)}}
	for _, c := range r.Checks {
		if c.Required && !c.OK {
			r.Note = c.Detail
			return r
		}
	}
	r.Usable, r.Note = true, version+" by emulation"
	if kvm == nil {
		r.Note = version + " on KVM"
	}
	return r
}

func (b *Backend) checkQEMU(ctx context.Context) (string, vm.Check) {
	path, err := b.config.find()
	if err != nil {
		return "", vm.Missing("qemu", true, err)
	}
	version, err := b.version(ctx, path)
	if err != nil {
		return "", vm.Missing("qemu", true, fmt.Errorf("%w: %s: %w", vm.ErrQEMUMissing, path, err))
	}
	return version, vm.Check{Name: "qemu", OK: true, Required: true, Detail: version + " at " + path}
}

// version returns QEMU's version. Asking costs a start of it, so the answer is
// kept in the cache, if there is one, for this very file.
func (b *Backend) version(ctx context.Context, path string) (string, error) {
	cached := ""
	if info, err := os.Stat(path); err == nil && b.config.CacheDir != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", path, info.Size(), info.ModTime().UnixNano()))
		cached = filepath.Join(b.config.CacheDir, "qemu-"+hex.EncodeToString(sum[:8])+".version")
		if raw, err := os.ReadFile(cached); err == nil && versionLine.Get().Match(raw) {
			return strings.TrimSuffix(string(raw), "\n"), nil
		}
	}
	version, err := versionOf(ctx, path)
	if err == nil && cached != "" && versionLine.MatchString(version+"\n") {
		_ = cachefile.Write(cached, 0o600, []byte(version+"\n")) // the next start asks again
	}
	return version, err
}

var versionLine = lazyregexp.New(`^QEMU [0-9][0-9A-Za-z.+~-]{0,30}\n$`)

// versionOf asks QEMU for the first line of its version.
func versionOf(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(out), "\n")
	_, version, ok := strings.Cut(line, "version ")
	if !ok {
		return "", fmt.Errorf("it answers %q", line)
	}
	version, _, _ = strings.Cut(version, " ")
	return "QEMU " + version, nil
}
