package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// KVMDevice is where the kernel offers hardware virtualisation.
	KVMDevice = "/dev/kvm"
	// kvmGetAPIVersion is KVM_GET_API_VERSION of linux/kvm.h, which has
	// answered kvmAPIVersion since 2007.
	kvmGetAPIVersion = 0xae00
	kvmAPIVersion    = 12
)

// kvmHost is what ProbeKVM looks at; tests put another host in its place.
type kvmHost struct {
	device, module, cpuinfo string
	arch                    string
	open                    func(string, int, os.FileMode) (*os.File, error) // nil: os.OpenFile
}

// ProbeKVM returns nil when KVM can run an ordinary kernel, else an error that
// wraps ErrKVMMissing, ErrKVMPermission or ErrKVMUnusable and has the remedy.
//
// The ioctls alone do not tell: kvm_pvm, a KVM without hardware, answers all
// of them and then ends every ordinary guest with an internal error.
func ProbeKVM() error {
	return kvmHost{
		device: KVMDevice, module: "/sys/module/kvm_pvm", cpuinfo: "/proc/cpuinfo", arch: runtime.GOARCH,
	}.probe()
}

func (h kvmHost) probe() error {
	open := h.open
	if open == nil {
		open = os.OpenFile
	}
	f, err := open(h.device, os.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: add yourself to its group, `sudo usermod -aG kvm $USER`, and log in again", ErrKVMPermission)
	case err != nil:
		return fmt.Errorf("%w: %w; enable virtualisation in the firmware, or nested virtualisation if this is a virtual machine", ErrKVMMissing, err)
	}
	defer f.Close()
	version, err := unix.IoctlRetInt(int(f.Fd()), kvmGetAPIVersion)
	if err != nil || version != kvmAPIVersion {
		return fmt.Errorf("%w: %s answers API version %d (%w)", ErrKVMUnusable, h.device, version, orNil(err))
	}
	if _, err := os.Stat(h.module); err == nil {
		return fmt.Errorf("%w: it is backed by the module kvm_pvm, which runs its own kernels only", ErrKVMUnusable)
	}
	if h.arch != "amd64" {
		return nil // other architectures have no flag to look for
	}
	raw, err := os.ReadFile(h.cpuinfo)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrKVMUnusable, err)
	}
	if !hasVirtualisation(string(raw)) {
		return fmt.Errorf("%w: the CPU has neither vmx nor svm; enable nested virtualisation if this is a virtual machine", ErrKVMUnusable)
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("want 12")
	}
	return err
}

// hasVirtualisation looks for Intel's or AMD's flag in /proc/cpuinfo.
func hasVirtualisation(cpuinfo string) bool {
	for line := range strings.Lines(cpuinfo) {
		name, flags, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != "flags" {
			continue
		}
		for flag := range strings.FieldsSeq(flags) {
			if flag == "vmx" || flag == "svm" {
				return true
			}
		}
		return false // all CPUs of a host have the same
	}
	return false
}
