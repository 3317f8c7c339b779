package dnsguard

import (
	"net/netip"
	"slices"
	"time"

	"github.com/msb-project/msb/hostname"
)

// clearEnded is how many of the oldest names are looked at for ended pins each
// time something is pinned: more than one, so that the table shrinks.
const clearEnded = 2

// put pins addrs, of which there is at least one, to name for ttl, which is
// clamped already. It returns a receipt that tells whether the pins stand.
func (p *Pins) put(name hostname.Name, addrs []netip.Addr, ttl time.Duration) receipt {
	now := p.clock()
	until := now + ttl + pinGrace
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear(now)
	owner := p.names[name]
	if owner == nil {
		p.evictName()
		owner = &pinnedName{name: name}
		p.names[name] = owner
	} else {
		owner.unlink()
		p.extend(owner, now, until)
	}
	owner.link(&p.order)
	for _, addr := range addrs {
		p.putOne(owner, plain(addr), now, until)
	}
	return receipt{owner, owner.lost.Load()}
}

// receipt says what was pinned. The zero receipt stands for nothing pinned.
type receipt struct {
	owner *pinnedName
	lost  uint32
}

// current reports whether no pin of the name was taken away since.
func (r receipt) current() bool { return r.owner == nil || r.owner.lost.Load() == r.lost }

// extend keeps the earlier addresses of a name while its new answer is fresh,
// but none for longer than the longest TTL after an answer last held it: names
// that rotate for ever must not collect addresses for ever.
func (p *Pins) extend(owner *pinnedName, now, until time.Duration) {
	longest := time.Duration(p.maxTTL.Load()) + pinGrace
	for _, old := range owner.pins {
		if !old.alive(now) {
			continue
		}
		if extended := min(until, old.seen+longest); extended > old.until {
			old.until = extended
			p.addrs[old.addr].names.Store(nil)
		}
	}
}

func (p *Pins) putOne(owner *pinnedName, addr netip.Addr, now, until time.Duration) {
	at := p.addrs[addr]
	if found := p.find(owner.name, addr); found != nil {
		found.seen, found.until = now, max(found.until, until)
		at.names.Store(nil)
		return
	}
	if len(owner.pins) >= maxPinsPerName && !p.dropOldest(owner.pins, now) {
		return
	}
	if at == nil {
		at = &pinnedAddr{}
		p.addrs[addr] = at
	} else if len(at.pins) >= maxNamesPerAddr && !p.dropOldest(at.pins, now) {
		return
	}
	// Dropping the oldest may have taken away the last pin of addr, and with
	// it the entry.
	p.addrs[addr] = at
	added := &pin{owner: owner, addr: addr, seen: now, until: until}
	owner.pins = append(owner.pins, added)
	at.pins = append(at.pins, added)
	at.names.Store(nil)
}

// dropOldest removes the pin of the list that was seen longest ago and isn't
// held, and reports whether there was one. One that is alive counts as evicted.
func (p *Pins) dropOldest(pins []*pin, now time.Duration) bool {
	var oldest *pin
	for _, candidate := range pins {
		if candidate.holds == 0 && (oldest == nil || candidate.seen < oldest.seen) {
			oldest = candidate
		}
	}
	if oldest == nil {
		return false
	}
	if oldest.alive(now) {
		p.evictedAddrs.Add(1)
	}
	p.remove(oldest)
	return true
}

// remove takes one pin out of both indexes. The name stays, perhaps empty: put
// is about to add to it, and clear removes what is empty.
func (p *Pins) remove(removed *pin) {
	owner := removed.owner
	owner.lost.Add(1)
	owner.pins = slices.DeleteFunc(owner.pins, func(q *pin) bool { return q == removed })
	at := p.addrs[removed.addr]
	at.pins = slices.DeleteFunc(at.pins, func(q *pin) bool { return q == removed })
	at.names.Store(nil)
	if len(at.pins) == 0 {
		delete(p.addrs, removed.addr)
	}
}

// removeName takes a name with all its pins out of the table.
func (p *Pins) removeName(owner *pinnedName) {
	for len(owner.pins) > 0 {
		p.remove(owner.pins[len(owner.pins)-1])
	}
	owner.unlink()
	delete(p.names, owner.name)
}

// clear removes the oldest names if nothing of them is alive.
func (p *Pins) clear(now time.Duration) {
	for range clearEnded {
		oldest := p.order.next
		if oldest == &p.order || slices.ContainsFunc(oldest.pins, func(q *pin) bool { return q.alive(now) }) {
			return
		}
		p.removeName(oldest)
	}
}

// evictName evicts, once the table is full, the name pinned longest ago that no
// flow holds. If flows hold every name the table grows by one: flows are bounded by
// the policy's limits.
func (p *Pins) evictName() {
	if len(p.names) < maxPinnedNames {
		return
	}
	for owner := p.order.next; owner != &p.order; owner = owner.next {
		if !slices.ContainsFunc(owner.pins, func(q *pin) bool { return q.holds > 0 }) {
			p.evictedNames.Add(1)
			p.removeName(owner)
			return
		}
	}
}

// retain removes the names that keep refuses, held or not: after a reload a
// flow to such a name is judged again, and must not find its pin.
func (p *Pins) retain(keep func(hostname.Name, netip.Addr) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, owner := range p.names {
		for _, pin := range slices.Clone(owner.pins) {
			if !keep(owner.name, pin.addr) {
				p.remove(pin)
			}
		}
		if len(owner.pins) == 0 {
			p.removeName(owner)
		}
	}
}

// link puts n at the end of the ring.
func (n *pinnedName) link(ring *pinnedName) {
	n.prev, n.next = ring.prev, ring
	ring.prev.next, ring.prev = n, n
}

// unlink takes n out of its ring.
func (n *pinnedName) unlink() {
	if n.next == nil {
		return
	}
	n.prev.next, n.next.prev = n.next, n.prev
	n.prev, n.next = nil, nil
}
