package vm

import (
	"os"
	"strings"
)

// NoCMPXCHG16B is an argument for a kernel on a CPU that QEMU emulates. QEMU up to 7.2 computes the flags of a CMPXCHG16B
// from an operand of an instruction before. An interrupt right behind it saves them, and its end loads them: an address
// in the place of flags, and the kernel panics. It has that instruction in each kmalloc, until it is told that the CPU
// lacks it. Programs still see it in CPUID, which distributions ask for (x86-64-v2).
const NoCMPXCHG16B = " clearcpuid=cx16"

// Emulated tells whether QEMU emulates the CPU of this machine, and so that of its guests under KVM.
func Emulated() bool { return emulated("/proc/cpuinfo") }

func emulated(cpuinfo string) bool {
	text, err := os.ReadFile(cpuinfo)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.Contains(name, "QEMU TCG CPU")
		}
	}
	return false
}
