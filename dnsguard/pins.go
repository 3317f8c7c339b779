package dnsguard

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/hostname"
)

// Pins ties names to the addresses that our own resolution gave for them, and
// back. Only Guard writes it, after every check on an answer has passed
// (invariant 6); everyone else asks.
//
// A pin lives for the clamped TTL and a grace. While any answer for a name is
// fresh its earlier addresses stay too, so that two lookups of a rotating name
// don't take each other's addresses away. A live flow holds its pin with Hold.
//
// The table is bounded by names, addresses of a name and names of an address;
// at each bound what was pinned longest ago goes, unless it is held.
type Pins struct {
	clock  clock
	maxTTL atomic.Int64

	mu    sync.RWMutex
	names map[hostname.Name]*pinnedName
	addrs map[netip.Addr]*pinnedAddr
	// order is the ring of all names, from the one pinned longest ago
	// (order.next) to the latest (order.prev).
	order pinnedName

	evictedNames, evictedAddrs atomic.Uint64
}

// pinnedName is a name with its addresses.
type pinnedName struct {
	name       hostname.Name
	pins       []*pin
	prev, next *pinnedName
	// lost counts the pins that were taken away before their end. A reply that
	// is kept for later is good only while this stands still: what it says must
	// be pinned.
	lost atomic.Uint32
}

// pin is one name at one address.
type pin struct {
	owner *pinnedName
	addr  netip.Addr
	// seen is when an answer last held addr; until is when the pin ends,
	// grace included.
	seen, until time.Duration
	holds       int
}

// pinnedAddr is an address with the pins of its names, oldest first.
type pinnedAddr struct {
	pins []*pin
	// names is the answer to Names until the earliest of its pins ends; nil
	// after a change.
	names atomic.Pointer[nameList]
}

type nameList struct {
	names []hostname.Name
	until time.Duration
}

func newPins(clock clock) *Pins {
	p := &Pins{
		clock: clock,
		names: make(map[hostname.Name]*pinnedName),
		addrs: make(map[netip.Addr]*pinnedAddr),
	}
	p.order.prev, p.order.next = &p.order, &p.order
	return p
}

// alive reports whether p counts at the time now.
func (p *pin) alive(now time.Duration) bool { return p.holds > 0 || now < p.until }

// Names returns the names pinned to addr, oldest first; nil if there is none.
// The slice is shared: callers must not change it.
func (p *Pins) Names(addr netip.Addr) []hostname.Name {
	now := p.clock()
	p.mu.RLock()
	defer p.mu.RUnlock()
	at := p.addrs[plain(addr)]
	if at == nil {
		return nil
	}
	if list := at.names.Load(); list != nil && now < list.until {
		return list.names
	}
	list := at.list(now)
	at.names.Store(list)
	return list.names
}

// list collects the names whose pins are alive. A list with a held pin past its
// end is built again each time, since release may come at any moment.
func (a *pinnedAddr) list(now time.Duration) *nameList {
	list := &nameList{until: 1<<63 - 1}
	for _, p := range a.pins {
		if !p.alive(now) {
			continue
		}
		list.names = append(list.names, p.owner.name)
		list.until = min(list.until, p.until)
	}
	return list
}

// Addrs returns the addresses pinned to name, oldest first; nil if there is
// none.
func (p *Pins) Addrs(name hostname.Name) []netip.Addr {
	now := p.clock()
	p.mu.RLock()
	defer p.mu.RUnlock()
	owner := p.names[name]
	if owner == nil {
		return nil
	}
	var addrs []netip.Addr
	for _, pin := range owner.pins {
		if pin.alive(now) {
			addrs = append(addrs, pin.addr)
		}
	}
	return addrs
}

// Hold keeps a pin for as long as a flow lives: until release is called it
// neither expires nor is evicted, and after it the grace begins again. Holding
// what isn't pinned does nothing: only an answer makes a pin. release may be
// called more than once.
func (p *Pins) Hold(name hostname.Name, addr netip.Addr) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.find(name, plain(addr))
	if held == nil || !held.alive(p.clock()) {
		return func() {}
	}
	held.holds++
	var once sync.Once
	return func() {
		once.Do(func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			held.holds--
			held.until = max(held.until, p.clock()+pinGrace)
			if at := p.addrs[held.addr]; at != nil {
				at.names.Store(nil)
			}
		})
	}
}

// find returns the pin of name at addr, ended or not; the caller holds mu.
func (p *Pins) find(name hostname.Name, addr netip.Addr) *pin {
	owner := p.names[name]
	if owner == nil {
		return nil
	}
	for _, pin := range owner.pins {
		if pin.addr == addr {
			return pin
		}
	}
	return nil
}

// plain is the form in which an address is kept: IPv4-mapped ones as IPv4,
// without a zone.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
