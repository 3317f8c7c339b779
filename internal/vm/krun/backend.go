package krun

import (
	"context"

	"github.com/msb-project/msb/internal/vm"
	"github.com/msb-project/msb/internal/vm/runner"
)

// Verb is the hidden first argument under which a confined msb loads libkrun.
const Verb = "__vmm-krun"

// Config is what a Backend is made with.
type Config struct {
	// CacheDir is where the guest's kernel is kept, made when missing.
	CacheDir string
	// Program is what the VMM's process starts in; nil means the program that runs.
	Program runner.Program
	// probeKVM tells whether KVM is usable; nil means vm.ProbeKVM.
	probeKVM func() error
	// record records the VMM's system calls instead of refusing any; nil refuses.
	record *runner.Recording
}

// Backend starts machines in libkrun.
type Backend struct{ config Config }

var _ vm.Backend = (*Backend)(nil)

// New returns the backend. Nothing is looked at before Probe or Start.
func New(c Config) *Backend {
	if c.probeKVM == nil {
		c.probeKVM = vm.ProbeKVM
	}
	return &Backend{config: c}
}

// Name implements vm.Backend.
func (b *Backend) Name() string { return "krun" }

// Probe implements vm.Backend.
func (b *Backend) Probe(context.Context) vm.Report {
	if err := supported(); err != nil {
		return vm.Report{Note: err.Error(), Checks: []vm.Check{vm.Missing("libkrun", true, err)}}
	}
	version, library := checkLibrary()
	r := vm.Report{Checks: []vm.Check{library, vm.CheckLibkrunfw(), vm.CheckKVM(b.config.probeKVM(), true)}}
	for _, c := range r.Checks {
		if !c.OK {
			r.Note = c.Detail
			return r
		}
	}
	r.Usable, r.Note = true, version+" on KVM"
	return r
}
