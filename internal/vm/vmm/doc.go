//go:build linux

// Command vmm is the program that VMMs start in: vm/runner and vm/krun, and nothing else of msb. internal/guest/build.sh
// builds it, and msb and the containerd shim carry it inside themselves:
//
//	msb ── internal/guest/assets ──► memfd, sealed ── execve ──► vmm __vmm ──► QEMU, or vmm __vmm-krun with libkrun in it
//
// It starts in a fraction of the time that all of msb takes, and the process that maps the guest's memory holds no code
// of the gateway. It does nothing that msb doesn't do under the same verbs, which is what happens where this program is
// not built in or can't be executed. See vm/runner for what it doesn't protect against.
package main
