//go:build linux && cgo

package krun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/creack/pty"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/kernel"
	"github.com/msb-project/msb/internal/vm/runner"
)

func supported() error { return nil }

// Start implements vm.Backend.
func (b *Backend) Start(ctx context.Context, spec vm.Spec) (vm.Machine, error) {
	l, err := b.prepare(&spec)
	if err != nil {
		if spec.Net != nil && spec.Net.FD != nil {
			err = errors.Join(err, spec.Net.FD.Close())
		}
		for _, f := range spec.Held {
			err = errors.Join(err, f.Close())
		}
		return nil, err
	}
	return l.Start(ctx)
}

// prepare does everything that needs no process.
func (b *Backend) prepare(spec *vm.Spec) (*runner.Launch, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	if spec.Resume != nil {
		return nil, fmt.Errorf("%w: libkrun has no saved state", vm.ErrNotResumed)
	}
	// Without a usable KVM libkrun panics, or runs a guest that dies in
	// seconds: say so before.
	if err := b.config.probeKVM(); err != nil {
		return nil, err
	}
	c, err := b.configure(spec)
	if err != nil {
		return nil, err
	}
	l, err := runner.NewLaunch(spec)
	if err != nil {
		return nil, err
	}
	c.Disks = spec.Disks // their paths are resolved now
	if err := useTerminal(l); err != nil {
		return nil, errors.Join(err, l.Discard())
	}
	if err := b.plan(l, c); err != nil {
		return nil, errors.Join(err, l.Discard())
	}
	if spec.Net != nil {
		l.Files = append(l.Files, spec.Net.FD)
	}
	l.Files = append(l.Files, spec.Held...)
	return l, nil
}

// Descriptors of the confined process, after the three of runner.NewLaunch.
const (
	agentFD   = runner.FirstFileFD
	consoleFD = runner.FirstFileFD + 1
	dirsFD    = runner.FirstFileFD + 2
	configFD  = runner.FirstFileFD + 3
	netFD     = runner.FirstFileFD + 4
)

func (b *Backend) configure(spec *vm.Spec) (*config, error) {
	c := &config{
		Cmdline: spec.KernelCmdline(), CPUs: uint8(spec.CPUs), MemoryMiB: uint32(spec.MemoryMiB),
		AgentFD: agentFD, DirectoriesFD: dirsFD, ConsoleFD: consoleFD, NetFD: -1,
	}
	if vm.Emulated() {
		c.Cmdline += vm.NoCMPXCHG16B
	}
	if spec.Net != nil {
		c.NetFD, c.MAC = netFD, spec.Net.MAC
	}
	libkrun, _, _, err := find()
	if err != nil {
		return nil, err
	}
	libkrunfw, err := vm.FindLibrary(vm.Libkrunfw, vm.ErrLibkrunfwMissing)
	if err != nil {
		return nil, err
	}
	image, err := kernel.Ensure(b.config.CacheDir, libkrunfw)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		from string
		to   *string
	}{{libkrun, &c.Libkrun}, {libkrunfw, &c.Libkrunfw}, {image, &c.Kernel}} {
		if *f.to, err = filepath.EvalSymlinks(f.from); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// useTerminal makes the console's channel a pseudo-terminal: libkrun gives the
// guest's kernel no console over anything else. What the guest writes is read
// as bytes, whatever a terminal would make of it: libkrun sets it to raw.
func useTerminal(l *runner.Launch) error {
	master, terminal, err := pty.Open()
	if err != nil {
		return fmt.Errorf("a pseudo-terminal for the guest's console: %w", err)
	}
	const console = consoleFD - runner.FirstFileFD
	err = errors.Join(l.Console.Close(), l.Files[console].Close())
	l.Console, l.Files[console] = master, terminal
	return err
}

// plan says what the process becomes and what it may see.
func (b *Backend) plan(l *runner.Launch, c *config) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	pipe, err := runner.PipeWith(raw)
	if err != nil {
		return err
	}
	l.Files = append(l.Files, pipe)
	l.Plan.Argv, l.Plan.Itself = []string{os.Args[0], Verb, strconv.Itoa(configFD)}, true
	l.Plan.Env = []string{"GOMAXPROCS=1", "GOGC=off", "RUST_BACKTRACE=0"}
	l.Plan.Handover, l.Plan.VMM, l.Recording, l.Program = true, runner.Libkrun, b.config.record, b.config.Program
	l.Plan.ReadOnly = append(l.Plan.ReadOnly, c.Libkrun, c.Libkrunfw, c.Kernel)
	l.Plan.Loads = []string{c.Libkrun, c.Libkrunfw}
	l.Plan.Devices = append(l.Plan.Devices, vm.KVMDevice)
	return nil
}
