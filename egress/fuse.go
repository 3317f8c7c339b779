package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// ErrFused is wrapped by every refusal of the dial fuse.
var ErrFused = errors.New("refused by the dial fuse")

// FuseError says which address the fuse refused, and of what class it is.
type FuseError struct {
	Addr  netip.AddrPort // zero where the address couldn't be read
	Class Class
}

var _ error = (*FuseError)(nil)

// Error says what was refused and what would open it.
func (e *FuseError) Error() string {
	if !e.Addr.IsValid() {
		return ErrFused.Error() + ": the address is not a literal IP address and port"
	}
	return fmt.Sprintf("%v: %v is %s; only a private rule or a line in [hosts] leads there", ErrFused, e.Addr, e.Class.Sentence())
}

// Unwrap makes errors.Is(err, ErrFused) true.
func (e *FuseError) Unwrap() error { return ErrFused }

// Fuse returns a function for net.Dialer.ControlContext (and
// net.ListenConfig.Control with a wrapper) that classifies the exact address
// which the kernel is about to be given, after every other check (invariant 5).
// A public address passes. Any other passes only if allow says so for exactly
// that address; a nil allow says so for none. Whatever can't be read is
// refused: unix sockets, names, a nil classifier.
func Fuse(c *Classifier, allow func(netip.AddrPort) bool) func(ctx context.Context, network, address string, _ syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") && !strings.HasPrefix(network, "udp") {
			return &FuseError{}
		}
		dst, err := netip.ParseAddrPort(address)
		if err != nil {
			return &FuseError{}
		}
		return CheckDial(c, dst, allow)
	}
}

// CheckDial is the fuse for sockets that no net.Dialer opens (ping sockets,
// unconnected UDP): call it right before the address goes to the kernel.
func CheckDial(c *Classifier, dst netip.AddrPort, allow func(netip.AddrPort) bool) error {
	if c == nil || !dst.IsValid() {
		return &FuseError{}
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	class := c.Class(dst.Addr())
	if class == ClassPublic || class != ClassInvalid && allow != nil && allow(dst) {
		return nil
	}
	return &FuseError{Addr: dst, Class: class}
}
