//go:build !linux

package qemu

import (
	"context"

	"github.com/msb-project/msb/internal/vm"
)

// Start implements vm.Backend.
func (b *Backend) Start(_ context.Context, spec vm.Spec) (vm.Machine, error) {
	if spec.Net != nil && spec.Net.FD != nil {
		_ = spec.Net.FD.Close() //nolint:errcheck // handed over
	}
	return nil, errNotAMD64
}

func supported() error { return errNotAMD64 }
