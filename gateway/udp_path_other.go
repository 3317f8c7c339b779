//go:build !linux

package gateway

import (
	"errors"
	"syscall"
)

func setFragments(syscall.RawConn, bool, bool) error { return errors.ErrUnsupported }

func pathMTU(syscall.RawConn, bool) int { return 0 }
