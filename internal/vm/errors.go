package vm

import "errors"

// What can be wrong with the host. Each is wrapped with what was found and the
// remedy.
var (
	// ErrNoBackend: no backend that the user's choice admits can run here.
	ErrNoBackend = errors.New("no usable virtual machine backend")
	// ErrUnsupported: this build or operating system lacks the backend.
	ErrUnsupported = errors.New("not supported by this build or system")
	// ErrKVMMissing: there is no /dev/kvm.
	ErrKVMMissing = errors.New("hardware virtualisation (KVM) is not available")
	// ErrKVMPermission: /dev/kvm is there and may not be opened by this user.
	ErrKVMPermission = errors.New("no permission to use /dev/kvm")
	// ErrKVMUnusable: /dev/kvm opens but cannot run an ordinary kernel.
	ErrKVMUnusable = errors.New("/dev/kvm can't run an ordinary kernel")
	// ErrLibkrunMissing: libkrun.so.1 was found nowhere.
	ErrLibkrunMissing = errors.New("libkrun was not found")
	// ErrLibkrunTooOld: libkrun is older than the floor.
	ErrLibkrunTooOld = errors.New("libkrun is too old")
	// ErrLibkrunfwMissing: libkrunfw.so.5 was found nowhere.
	ErrLibkrunfwMissing = errors.New("libkrunfw, which holds the guest kernel, was not found")
	// ErrQEMUMissing: qemu-system-x86_64 was found nowhere.
	ErrQEMUMissing = errors.New("qemu-system-x86_64 was not found")
	// ErrNotResumed: a saved machine can't go on, because it needs another host,
	// or because what is kept of it can't be loaded.
	ErrNotResumed = errors.New("the saved machine can't go on here")
	// ErrSpec: the Spec itself is wrong.
	ErrSpec = errors.New("machine specification is wrong")
)

// How a machine can end other than by the guest's own orderly reboot.
var (
	// ErrGuestPanic: the guest's kernel panicked.
	ErrGuestPanic = errors.New("the guest's kernel panicked")
	// ErrGuestOutOfMemory: the guest's kernel panicked for want of memory.
	ErrGuestOutOfMemory = errors.New("the guest ran out of memory")
	// ErrVMM: the VMM process failed.
	ErrVMM = errors.New("the virtual machine monitor failed")
	// ErrKilled: Kill was called, or someone else killed the VMM.
	ErrKilled = errors.New("the virtual machine was killed")
)
