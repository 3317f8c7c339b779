// Package kernel takes the guest's Linux kernel out of libkrunfw and writes it
// as an ELF file that both backends boot.
//
// libkrunfw is a shared library around one array, the kernel as it lies in
// guest memory. The library is read as an ELF file, never loaded, so that this
// works in a build without cgo and nothing of the library's code runs:
//
//	libkrunfw.so.5 ─ parse ─► kernelImage ─ writeELF ─► kernel-<sha256>.elf ◄─ Ensure (cache)
//
// The ELF holds one segment at the kernel's physical address and a PVH note.
// libkrun enters it at the 64-bit entry in the ELF header, QEMU at the 32-bit
// entry in the note.
//
// What this package does not protect against: whoever can write libkrunfw or
// the cache chooses the guest's kernel. It belongs to the same trust as msb's
// own binary. It is x86-64 only; other architectures get errFormat.
package kernel
