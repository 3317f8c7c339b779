//go:build !linux || !cgo

package krun

import (
	"context"
	"fmt"

	"github.com/msb-project/msb/internal/vm"
)

var errBuild = fmt.Errorf("%w: this msb was built without cgo; build with CGO_ENABLED=1 and a C compiler to have libkrun", vm.ErrUnsupported)

func supported() error { return errBuild }

// Start implements vm.Backend.
func (b *Backend) Start(_ context.Context, spec vm.Spec) (vm.Machine, error) {
	if spec.Net != nil && spec.Net.FD != nil {
		_ = spec.Net.FD.Close()
	}
	return nil, errBuild
}

// Main is the hidden verb: it says why it can't be run.
func Main() int { return 125 }
