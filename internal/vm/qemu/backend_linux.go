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
	var handed []*os.File
	if spec.Net != nil && spec.Net.FD != nil {
		handed = append(handed, spec.Net.FD)
	}
	l, err := b.prepare(&spec)
	if err != nil {
		for _, f := range handed {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	l.Files = append(l.Files, handed...)
	return l.Start(ctx)
}

// prepare does everything that needs no process.
func (b *Backend) prepare(spec *vm.Spec) (*runner.Launch, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	binary, err := b.find()
	if err != nil {
		return nil, err
	}
	library, err := vm.FindLibrary(vm.Libkrunfw, vm.ErrLibkrunfwMissing)
	if err != nil {
		return nil, err
	}
	image, err := kernel.Ensure(b.config.CacheDir, library)
	if err != nil {
		return nil, err
	}
	if image, err = filepath.EvalSymlinks(image); err != nil {
		return nil, err
	}
	l, err := runner.NewLaunch(b.config.Self, spec)
	if err != nil {
		return nil, err
	}
	accel := b.accel()
	fd := fds{agent: runner.FirstFileFD, console: runner.FirstFileFD + 1}
	if spec.Net != nil {
		fd.net = runner.FirstFileFD + 2
	}
	l.Plan.Argv = args(binary, image, spec.KernelCmdline()+b.clockArgument(accel), spec, accel, fd)
	l.Plan.Env, l.Plan.VMM, l.Recording = []string{}, runner.QEMU, b.config.Record
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

func (b *Backend) accel() accel {
	switch {
	case b.config.NestedVirtualisation:
		return emulatedInTurn
	case b.config.ProbeKVM() == nil:
		return onKVM
	}
	return emulated
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
	path, err := b.config.Find()
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
