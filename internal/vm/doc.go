// Package vm names what a microVM is to the rest of msb: a [Spec] goes into a
// [Backend], a [Machine] comes out.
//
// The ways in and out of a machine are few, and all of them are descriptors
// that the caller holds the other end of:
//
//	disks     raw files, seen as /dev/vda, /dev/vdb, … in the order of the Spec
//	agent     one byte stream, the virtio-console port "msb.agent"
//	files     another, "msb.directories"
//	network   one stream socket with a 4-byte length before each frame, or nothing at all
//	console   output only, into a log of bounded size
//
// Two backends live below: vm/krun (libkrun, needs KVM) and vm/qemu (QEMU's
// microvm machine, KVM or emulation). Both boot the same kernel, taken from
// libkrunfw by vm/kernel, with the same command line and the same disks, and
// both are started through vm/runner, which takes privileges away from the
// process before the first guest instruction. vm/backends puts them together.
//
// What this package does not protect against: a guest may use all of the CPU
// and memory that its Spec grants and fill every writable disk it was handed;
// limits on the size of disks are the caller's. A flaw in KVM or in the host
// kernel's handling of the few system calls that remain is out of reach of the
// confinement. Frames and agent bytes come from the guest: whoever reads them
// must expect any bytes at any time.
package vm
