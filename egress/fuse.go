package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
)

// errFused is wrapped by every refusal of the dial fuse.
var errFused = errors.New("refused by the dial fuse")

// fuseError says which address the fuse refused, and of what class it is.
type fuseError struct {
	Addr  netip.AddrPort // zero where the address couldn't be read
	Class Class
}

var _ error = (*fuseError)(nil)

// Error says what was refused and what would open it.
func (e *fuseError) Error() string {
	if !e.Addr.IsValid() {
		return errFused.Error() + ": the address is not a literal IP address and port"
	}
	return fmt.Sprintf("%v: %v is %s; only a private rule, within of a rule for its name, or a line in [hosts] leads there", errFused, e.Addr, e.Class.Sentence())
}

// Unwrap makes errors.Is(err, ErrFused) true.
func (e *fuseError) Unwrap() error { return errFused }

// Reach is how far a dial may go.
type Reach uint8

const (
	// ReachPublic is public addresses.
	ReachPublic Reach = iota
	// ReachPrivate is what rules open, too: never the host or the gateway.
	ReachPrivate
	// ReachTarget is a target of [hosts]: the operator may lead to the host.
	ReachTarget
)

// Reach is how far a dial to dst may go by this verdict: beyond public addresses
// only to one that is in the range which the rule opened.
func (v *Verdict) Reach(dst netip.AddrPort) Reach {
	a := plainAddr(dst.Addr())
	if v.Action == Deny || !v.Special || !v.Range.Contains(a) || !opensMetadata(Classify(a), v.Range.IsSingleIP()) {
		return ReachPublic
	}
	return ReachPrivate
}

// Fuse returns a function for net.Dialer.ControlContext (and
// net.ListenConfig.Control with a wrapper) that classifies the exact address
// which the kernel is about to be given, after every other check (invariant 5).
// A public address passes. Any other passes only if reach says so for exactly
// that address; a nil reach says so for none. Whatever can't be read is
// refused: unix sockets, names, a nil classifier.
func Fuse(c *Classifier, reach func(netip.AddrPort) Reach) func(ctx context.Context, network, address string, _ syscall.RawConn) error {
	return func(_ context.Context, network, address string, _ syscall.RawConn) error {
		proto := TCP
		switch {
		case strings.HasPrefix(network, "tcp"):
		case strings.HasPrefix(network, "udp"):
			proto = UDP
		default:
			return &fuseError{}
		}
		dst, err := netip.ParseAddrPort(address)
		if err != nil {
			return &fuseError{}
		}
		return CheckDial(c, proto, dst, reach)
	}
}

// CheckDial is the fuse for sockets that no net.Dialer opens (ping sockets,
// unconnected UDP): call it right before the address goes to the kernel. Called
// once more when a socket is connected, it tells whether the address became the
// host's meanwhile.
func CheckDial(c *Classifier, proto Proto, dst netip.AddrPort, reach func(netip.AddrPort) Reach) error {
	if c == nil || !dst.IsValid() {
		return &fuseError{}
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	class, far := c.class(dst.Addr()), ReachPublic
	if reach != nil {
		far = reach(dst)
	}
	switch {
	case class == ClassInvalid:
	case far == ReachTarget:
		return nil
	case class.final(), class != ClassPublic && far != ReachPrivate:
	case c.Owns(proto, dst):
		class = ClassHost
	default:
		return nil
	}
	return &fuseError{Addr: dst, Class: class}
}
