//go:build !linux

package vm

import "fmt"

// KVMDevice is where Linux offers hardware virtualisation.
const KVMDevice = "/dev/kvm"

// ProbeKVM returns an error that wraps ErrUnsupported: KVM is Linux's.
func ProbeKVM() error { return fmt.Errorf("%w: KVM needs Linux", ErrUnsupported) }
