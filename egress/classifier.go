package egress

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Classifier classifies with the host's own addresses and the gateway's beside
// the static tables. Class may be called from any goroutine while the addresses
// change. The zero value knows no addresses; SetHost or Follow fill them in.
type Classifier struct {
	mu   sync.Mutex // serialises writers
	snap atomic.Pointer[snapshot]
	// kernel is KernelOwns, or what stands in for it.
	kernel func(Proto, netip.AddrPort) bool
}

// snapshot is immutable.
type snapshot struct {
	// node are addresses of this machine's that none of the interfaces that are
	// read has.
	host, node, gateway map[netip.Addr]struct{}
}

// class returns ClassGateway, ClassHost, or ClassInvalid for neither. The host
// comes first: where both have an address, the stricter denial applies.
func (s *snapshot) class(a netip.Addr) Class {
	if s == nil {
		return ClassInvalid
	}
	if s.isHost(a) {
		return ClassHost
	}
	if _, ok := s.gateway[a]; ok {
		return ClassGateway
	}
	return ClassInvalid
}

func (s *snapshot) isHost(a netip.Addr) bool {
	_, ok := s.host[a]
	if !ok {
		_, ok = s.node[a]
	}
	return ok
}

// NewClassifier returns a classifier that knows the gateway's own addresses.
func NewClassifier(gateway ...netip.Addr) *Classifier {
	c := &Classifier{}
	c.SetGateway(gateway...)
	return c
}

// class returns the class of a. A zone is ignored. It doesn't allocate.
func (c *Classifier) class(a netip.Addr) Class {
	return classify(a, c.snap.Load())
}

// AskKernel makes Owns call owns. It must be called before the classifier is
// used.
func (c *Classifier) AskKernel(owns func(Proto, netip.AddrPort) bool) { c.kernel = owns }

// Owns reports whether the host's kernel keeps what is sent to dst to itself;
// without AskKernel it says no. Other than Class it asks each time: routes and
// addresses may change between any two calls.
func (c *Classifier) Owns(proto Proto, dst netip.AddrPort) bool {
	return c.kernel != nil && c.kernel(proto, dst)
}

// SetHost replaces the host's own addresses.
func (c *Classifier) SetHost(addrs ...netip.Addr) {
	c.update(func(s *snapshot) { s.host = addrSet(addrs) })
}

// SetNode replaces the addresses that are this machine's beside those of SetHost and
// Follow, which see one network namespace alone.
func (c *Classifier) SetNode(addrs ...netip.Addr) {
	c.update(func(s *snapshot) { s.node = addrSet(addrs) })
}

// SetGateway replaces the gateway's own addresses.
func (c *Classifier) SetGateway(addrs ...netip.Addr) {
	c.update(func(s *snapshot) { s.gateway = addrSet(addrs) })
}

func (c *Classifier) update(change func(*snapshot)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := &snapshot{}
	if old := c.snap.Load(); old != nil {
		*next = *old
	}
	change(next)
	c.snap.Store(next)
}

func addrSet(addrs []netip.Addr) map[netip.Addr]struct{} {
	set := make(map[netip.Addr]struct{}, len(addrs))
	for _, a := range addrs {
		if a.IsValid() {
			set[a.Unmap().WithZone("")] = struct{}{}
		}
	}
	return set
}

// OwnedByHost reports whether a is an address of this machine, a loopback one included: what came from it did not come
// from another machine. Other than Class it looks into no address that holds another.
func (c *Classifier) OwnedByHost(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.IsLoopback() {
		return true
	}
	s := c.snap.Load()
	return s != nil && s.isHost(a)
}
