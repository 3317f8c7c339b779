package shim

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
)

// refused is an error in what containerd asks for, whose text ends up in the pod's events.
func refused(text string) error { return withKind(text, errdefs.ErrInvalidArgument) }

func withKind(text string, kind error) error { return fmt.Errorf("msb: %s: %w", text, kind) }

// toGRPC makes containerd see what kind of error it is.
func toGRPC(err error) error {
	if err == nil {
		return nil
	}
	return errgrpc.ToGRPC(err)
}
