// Package krun runs machines in libkrun, the fast way where KVM runs ordinary
// kernels.
//
//	vm.Spec ─► vm/runner ─ execve ─► msb __vmm-krun ─ dlopen ─► libkrun ─ krun_start_enter
//
// libkrun takes over the process that starts a machine and ends it with the
// guest, so it is never loaded into the supervisor. The process that loads it
// is vm/vmm or msb again, confined by vm/runner beforehand.
//
// libkrun is found and loaded at run time: building needs a C compiler and no
// header of libkrun's. A build without cgo has a backend that says so.
//
// Three of libkrun's defaults would let the guest reach the host and are
// switched off explicitly: the implicit vsock, through which guest sockets
// become host sockets (TSI) when no network card is added; the implicit
// console, which would write to the user's terminal; and the copy of this
// process's environment into the guest. The guest's root is a disk, so there
// is no virtiofs either.
//
// What this package does not protect against: libkrun is one process with its
// device models in it, and for a flaw there only vm/runner's confinement is
// left.
package krun
