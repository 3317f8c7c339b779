package qemu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/kernel"
	"github.com/msb-project/msb/internal/vm/runner"
)

// Start implements vm.Backend.
func (b *Backend) Start(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	if spec.Resume != nil {
		return b.resume(ctx, &spec)
	}
	if spec.Warm && b.accel() != emulatedInTurn && spec.Validate() == nil {
		if m := b.startWarm(ctx, &spec); m != nil {
			return m, nil
		}
	}
	if !spec.Saves {
		return b.start(ctx, &spec, saving{})
	}
	mon, m, err := b.startMonitored(ctx, &spec, nil, nil)
	if err != nil {
		return nil, err
	}
	return b.saver(ctx, m, &spec, mon, false)
}

// saving are this process's ends of what a machine that is saved or restored
// gets; empty for one that isn't. state is nil for one that will be saved.
type saving struct{ memory, monitor, state *os.File }

func (s saving) files() []*os.File {
	var list []*os.File
	for _, f := range []*os.File{s.memory, s.monitor, s.state} {
		if f != nil {
			list = append(list, f)
		}
	}
	return list
}

// start starts a machine. It takes the descriptors over.
func (b *Backend) start(ctx context.Context, spec *vm.Spec, s saving) (vm.Machine, error) {
	var handed []*os.File
	if spec.Net != nil && spec.Net.FD != nil {
		handed = append(handed, spec.Net.FD)
	}
	handed = append(handed, s.files()...)
	handed = append(handed, spec.Held...) // last: their numbers are nobody's business
	l, err := b.prepare(spec, s)
	if err != nil {
		for _, f := range handed {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	l.Files = append(l.Files, handed...)
	return l.Start(ctx)
}

// numbers are the descriptors of a machine's files, in the order of start.
func numbers(spec *vm.Spec, s saving) fds {
	fd := fds{agent: runner.FirstFileFD, console: runner.FirstFileFD + 1, dirs: runner.FirstFileFD + 2}
	next := runner.FirstFileFD + 3
	for _, n := range []struct {
		there bool
		to    *int
	}{{spec.Net != nil, &fd.net}, {s.memory != nil, &fd.memory}, {s.monitor != nil, &fd.monitor}, {s.state != nil, &fd.state}} {
		if n.there {
			*n.to = next
			next++
		}
	}
	return fd
}

// prepare does everything that needs no process.
func (b *Backend) prepare(spec *vm.Spec, s saving) (*runner.Launch, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	binary, err := b.find()
	if err != nil {
		return nil, err
	}
	image, err := b.kernel()
	if err != nil {
		return nil, err
	}
	l, err := runner.NewLaunch(spec)
	if err != nil {
		return nil, err
	}
	accel, cmdline := b.accel(), spec.KernelCmdline()
	if s.state == nil { // else the guest has booted long ago
		cmdline += b.clockArgument(accel)
	}
	l.Plan.Argv = args(binary, image, cmdline, spec, accel, numbers(spec, s))
	l.Plan.Descriptors = s.memory != nil
	l.Plan.Env, l.Plan.VMM, l.Recording, l.Program = []string{}, runner.QEMU, b.config.record, b.config.Program
	l.Plan.ReadOnly = append(l.Plan.ReadOnly, image)
	modules := modules(binary)
	l.Plan.ReadOnly = append(l.Plan.ReadOnly, modules...)
	l.Plan.ReadOnly = append(l.Plan.ReadOnly, runner.Libraries(append(modules, binary)...)...)
	l.Plan.ReadOnly = append(l.Plan.ReadOnly, firmware(binary)...)
	if accel == onKVM {
		l.Plan.Devices = append(l.Plan.Devices, vm.KVMDevice)
	}
	return l, nil
}

// kernel returns the path of the guest's kernel.
func (b *Backend) kernel() (string, error) {
	library, err := vm.FindLibrary(vm.Libkrunfw, vm.ErrLibkrunfwMissing)
	if err != nil {
		return "", err
	}
	image, err := kernel.Ensure(b.config.CacheDir, library)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(image)
}

// modules are the parts of QEMU itself that distributions split off, as far as a
// machine of ours needs them: the accelerators.
func modules(binary string) []string {
	prefix := filepath.Dir(filepath.Dir(binary))
	var found []string
	for _, dir := range []string{"lib/x86_64-linux-gnu/qemu", "lib64/qemu", "lib/qemu"} {
		list, err := filepath.Glob(filepath.Join(prefix, dir, "accel-*x86_64.so"))
		if err == nil {
			found = append(found, list...)
		}
	}
	return found
}

// firmware are the directories that QEMU loads its firmware from: by its own
// prefix, and where distributions share it between packages.
func firmware(binary string) []string {
	prefix := filepath.Dir(filepath.Dir(binary))
	dirs := []string{"/usr/share/qemu", "/usr/share/seabios", "/usr/share/qboot"}
	if own := filepath.Join(prefix, "share", "qemu"); own != dirs[0] {
		dirs = append(dirs, own)
	}
	return dirs
}

func (b *Backend) find() (string, error) {
	path, err := b.config.find()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(path)
}

func supported() error {
	if runtime.GOARCH != "amd64" {
		return errNotAMD64
	}
	return nil
}
