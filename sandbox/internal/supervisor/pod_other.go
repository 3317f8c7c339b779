//go:build !linux

package supervisor

import (
	"errors"
	"net/netip"
)

func ownNetwork() (uint64, error)          { return 0, errors.ErrUnsupported }
func routeGateways() ([]netip.Addr, error) { return nil, errors.ErrUnsupported }
