package qemu

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// guestProcessor names the processor that a guest sees. A saved machine runs on no other: its kernel has chosen its
// instructions and its defences by what it found, and QEMU doesn't compare processors when it loads a state.
func (b *Backend) guestProcessor() (string, error) {
	switch b.accel() {
	case onKVM:
		if b.config.kvmProcessor != nil {
			return b.config.kvmProcessor()
		}
		return kvmProcessor()
	case emulatedInTurn:
		return "emulated in turn", nil
	case emulated:
	}
	return "emulated", nil
}

// kvmProcessor is the one that guests on KVM see: the host's, as far as this kernel's KVM gives it to them.
func kvmProcessor() (string, error) {
	cpuinfo, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	defer cpuinfo.Close()
	model, host, err := firstProcessor(cpuinfo)
	if err != nil {
		return "", err
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return "", os.NewSyscallError("uname", err)
	}
	leaves, registers, err := kvmFeatures()
	if err != nil {
		return "", fmt.Errorf("what KVM gives guests of the processor: %w", err)
	}
	return processorName(model, host+unix.ByteSliceToString(kernel.Release[:])+unix.ByteSliceToString(kernel.Version[:]), leaves, registers), nil
}

// processorName is the model's, for people, and a sum of all that tells processors apart.
func processorName(model, host string, leaves []cpuidLeaf, registers []featureRegister) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q", host)
	for _, l := range leaves {
		if ofEveryCPU(&l) {
			fmt.Fprintf(h, "%x", l)
		}
	}
	fmt.Fprintf(h, "%x", registers)
	return fmt.Sprintf("the host's, %s, %x", model, h.Sum(nil)[:12])
}

// firstProcessor returns the model of the first processor of /proc/cpuinfo, and the lines that tell it from others of the
// model. It reads no further: the kernel takes long to list some hundred.
func firstProcessor(cpuinfo io.Reader) (model, lines string, err error) {
	in := bufio.NewScanner(cpuinfo)
	var kept strings.Builder
	for model = runtime.GOARCH; in.Scan() && in.Text() != ""; {
		key, value, _ := strings.Cut(in.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
			fmt.Fprintln(&kept, in.Text())
		case "vendor_id", "cpu family", "model", "stepping", "microcode", "flags", "vmx flags", "bugs":
			fmt.Fprintln(&kept, in.Text())
		}
	}
	return model, kept.String(), in.Err()
}

// ofEveryCPU tells whether a leaf is the same on all CPUs of a host, once it has taken out of it what isn't. Some kernels
// copy the number of the CPU that is asked, or the sizes of its caches, which differ between large and small cores. QEMU
// makes these up for its guests, but for the model, which firstProcessor has.
func ofEveryCPU(l *cpuidLeaf) bool {
	switch l.Function {
	case 0x1: // model; number
		l.EAX, l.EBX = 0, 0
	case 0xd: // what the asking thread uses
		l.EBX = 0
	case 0x2, 0x4, 0x80000005, 0x80000006, 0x8000001d: // caches
		return false
	case 0xb, 0x1f, 0x8000001e, 0x80000026: // numbers
		return false
	}
	return true
}
