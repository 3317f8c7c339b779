// Package qemu runs machines in QEMU's microvm machine, with KVM where it runs
// ordinary kernels and by emulation everywhere else.
//
//	vm.Spec ─ args ─► argv ─ vm/runner ─► qemu-system-x86_64 -M microvm
//
// There is no PCI, no ACPI, no firmware setting and no display, and no monitor
// but of a machine that is saved, loaded, or may be saved while it runs:
// virtio-mmio devices for the disks, one virtio-serial with the console and
// the agent's port, and one network card if the Spec has one. All channels are
// inherited descriptors; QEMU opens no socket and no file but its kernel, its
// firmware and the disks.
//
// What this package does not protect against: emulation (TCG) is not a
// security boundary that QEMU's own project vouches for. There the confinement
// of vm/runner is the boundary, and Confinement says so.
package qemu
