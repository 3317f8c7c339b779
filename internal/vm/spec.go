package vm

import (
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/msb-project/msb/internal/lazyregexp"
)

const (
	// MaxCPUs bounds Spec.CPUs: libkrun takes a byte, and no sandbox has asked
	// for more.
	MaxCPUs = 64
	// MinMemoryMiB is what the guest kernel (about 60 MiB once loaded) and the
	// agent need to come up at all.
	MinMemoryMiB = 96
	// MaxMemoryMiB keeps a typing error from asking for all of the host.
	MaxMemoryMiB = 512 << 10
	// maxDisks is what the names vda to vdz allow.
	maxDisks = 26
	// maxCmdline is COMMAND_LINE_SIZE of x86 less what the backends append for
	// their devices (about 40 bytes for each of at most MaxDisks+2) and clock.
	maxCmdline = 2048 - 40*(maxDisks+2) - 32
)

// diskID is what both VMMs and the virtio specification (20 bytes) admit, less
// anything that has a meaning in an option's syntax.
var diskID = lazyregexp.New(`^[A-Za-z0-9._-]{1,20}$`)

// cmdlineArg is a kernel argument without quotes, spaces or control bytes.
var cmdlineArg = lazyregexp.New(`^[A-Za-z0-9._=,:/@+-]+$`)

// baseCmdline boots the first disk's /init with the console on hvc0.
//
// There is no ACPI: the guest leaves by a triple fault (reboot=t), and a panic
// leaves the same way at once (panic=-1). The clock is trusted, for under
// emulation the watchdog would find fault with it; so would the check of the
// timer interrupt (no_timer_check), which panics a guest whose emulator was not
// scheduled for a moment. The start of the crypto API's jitter generator
// (jent_mod_init) tests it with thousands of timings, a quarter of the kernel's
// boot under emulation; getrandom(2) does not use it. Devices that the guest's
// /dev does not have (cpuid_init, uinput_misc_init, eight loop devices) are a
// twentieth, and what the allocator's debugging shows (slab_sysfs_init) another. SELinux
// without a policy allows everything, and takes its time for that at every call.
const baseCmdline = "console=hvc0 root=/dev/vda rootfstype=ext4 ro init=/init reboot=t panic=-1 quiet tsc=reliable no_timer_check " +
	"initcall_blacklist=jent_mod_init,cpuid_init,uinput_misc_init,slab_sysfs_init loop.max_loop=0 lsm=capability"

// KernelCmdline returns the whole command line of the machine's kernel.
func (s *Spec) KernelCmdline() string {
	return strings.Join(append([]string{baseCmdline}, s.Cmdline...), " ")
}

// Validate checks what a backend can't. Its errors wrap ErrSpec.
func (s *Spec) Validate() error {
	switch {
	case s.CPUs < 1 || s.CPUs > MaxCPUs:
		return fmt.Errorf("%w: %d CPUs, give 1 to %d", ErrSpec, s.CPUs, MaxCPUs)
	case s.MemoryMiB < MinMemoryMiB || s.MemoryMiB > MaxMemoryMiB:
		return fmt.Errorf("%w: %d MiB of memory, give %d to %d", ErrSpec, s.MemoryMiB, MinMemoryMiB, MaxMemoryMiB)
	case len(s.Disks) < 1 || len(s.Disks) > maxDisks:
		return fmt.Errorf("%w: %d disks, give 1 to %d", ErrSpec, len(s.Disks), maxDisks)
	case s.Net != nil && s.Net.FD == nil:
		return fmt.Errorf("%w: a network device without a descriptor", ErrSpec)
	case s.Net != nil && !unicastMAC(s.Net.MAC):
		return fmt.Errorf("%w: %q is not a unicast MAC address", ErrSpec, s.Net.MAC)
	}
	for _, arg := range s.Cmdline {
		if !cmdlineArg.MatchString(arg) {
			return fmt.Errorf("%w: kernel argument %q", ErrSpec, arg)
		}
	}
	if n := len(s.KernelCmdline()); n > maxCmdline {
		return fmt.Errorf("%w: a kernel command line of %d bytes, at most %d fit", ErrSpec, n, maxCmdline)
	}
	return s.validateDisks()
}

func (s *Spec) validateDisks() error {
	seen := make(map[string]bool)
	for _, d := range s.Disks {
		if !diskID.MatchString(d.ID) || seen[d.ID] {
			return fmt.Errorf("%w: disk id %q is used twice or is not 1 to 20 of [A-Za-z0-9._-]", ErrSpec, d.ID)
		}
		seen[d.ID] = true
		info, err := os.Stat(d.Path)
		if err != nil {
			return fmt.Errorf("%w: disk %s: %w", ErrSpec, d.ID, err)
		}
		if !info.Mode().IsRegular() || info.Size()%512 != 0 || info.Size() == 0 {
			// A VMM would round the size, and the guest would see another disk
			// than was written.
			return fmt.Errorf("%w: disk %s (%s) is not a regular file of whole 512-byte sectors", ErrSpec, d.ID, d.Path)
		}
	}
	return nil
}

func unicastMAC(mac net.HardwareAddr) bool { return len(mac) == 6 && mac[0]&1 == 0 }
