// Command boot measures how long a sandbox takes to start and to run a command
// in, with QEMU's emulation on this machine and with libkrun, where
// microsandbox 0.7.2 runs beside it.
//
//	here            msb run, Start + Exec                QEMU emulation
//	emulated host   the same, libkrun │ microsandbox     taken in turns
//	                msb run as a copy with QEMU on KVM, and
//	                the memory of ten idle ones
//	                copies into and out of a sandbox,
//	                files in a -v directory and on the
//	                guest's own disk: -only work
//
// The files are worked with by the program that bench/work runs in its guest
// under emulation: bench/internal/guestwork.
//
// A machine that runs ordinary kernels under KVM could take libkrun's figures
// without an emulated host; they are taken inside one everywhere, so that runs
// can be compared. An emulated host's clock counts instructions while it works
// and follows the real one while it waits, so that other load hardly shows: read
// the ratios, not the seconds. Both sides have
// warm caches, one CPU, 512 MiB and their usual network, and take turns.
//
// What is not the same on both sides stands under the table. The program is a
// benchmark: it exits 0 when a target is missed, and 1 when it could not
// measure. It compares no security and no throughput of the network.
package main
