package dnsguard

import (
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// maxReplayMapped bounds the addresses of [hosts] that a capture can make a Replay remember, and the names
// without an address that is left.
const maxReplayMapped = 1 << 16

// Replay judges questions and pins answers as a Guard does, but takes both from a capture and the time
// from whoever reads it: nothing is asked and nothing is sent. It knows no rates and no bound on
// tunnels. It is not safe for several goroutines.
type Replay struct {
	judge  Judge
	lowest time.Duration
	most   time.Duration
	hosts  map[hostname.Name]policies.HostMapping
	mapped map[netip.Addr]policies.HostMapping
	pins   *Pins
	now    time.Duration
	// refused are names of which a record gave no address that they may have.
	refused map[hostname.Name]struct{}
}

// NewReplay returns a Replay under a policy.
func NewReplay(p *policies.Policy, judge Judge) *Replay {
	r := &Replay{
		judge:   judge,
		hosts:   make(map[hostname.Name]policies.HostMapping, len(p.Hosts)),
		mapped:  make(map[netip.Addr]policies.HostMapping),
		refused: make(map[hostname.Name]struct{}),
	}
	r.lowest, r.most = ttlBounds(p.DNS)
	for _, m := range p.Hosts {
		r.hosts[m.Name] = m
	}
	r.pins = newPins(func() time.Duration { return r.now })
	r.pins.maxTTL.Store(int64(r.most))
	return r
}

// At sets the time, counted from any start. It never goes back.
func (r *Replay) At(t time.Duration) { r.now = max(r.now, t) }

// Pinned returns the names that are pinned to addr.
func (r *Replay) Pinned(addr netip.Addr) []hostname.Name { return r.pins.Names(addr) }

// Mapped returns the name of [hosts] that an answer in the capture gave addr out for.
func (r *Replay) Mapped(addr netip.Addr) (hostname.Name, bool) {
	m, ok := r.mapped[plain(addr)]
	return m.Name, ok
}

// Replayed is what became of one question or answer.
type Replayed struct {
	// Name is what was asked for; zero if that was no host name.
	Name hostname.Name
	// Type is the question's type, "A", "HTTPS".
	Type    string
	Verdict egress.Verdict
	// Addrs are the answer's addresses that the name may have, Removed those that it may not.
	Addrs, Removed []netip.Addr
}

// Question judges a query, without the two bytes of length that TCP has before it.
func (r *Replay) Question(packet []byte) Replayed {
	q := new(wire.Question)
	if len(packet) > maxQuery || q.Read(packet) != nil {
		return Replayed{Verdict: egress.Verdict{Reason: egress.ReasonInvalid}}
	}
	d := decide(r.judge, r, q)
	return Replayed{Type: dns.Type(q.Type).String(), Name: d.name, Verdict: d.verdict}
}

// maps implements nameTable.
func (r *Replay) maps(name hostname.Name) bool {
	_, ok := r.hosts[name]
	return ok
}

// Answer takes an answer that the guest got, and pins what the policy lets its name have. It reports
// false for what is no answer to a plain question.
func (r *Replay) Answer(packet []byte) (Replayed, bool) {
	msg := new(dns.Msg)
	if msg.Unpack(packet) != nil || !msg.Response || len(msg.Question) != 1 || msg.Question[0].Qclass != dns.ClassINET {
		return Replayed{}, false
	}
	switch msg.Rcode {
	case dns.RcodeFormatError, dns.RcodeNotImplemented, dns.RcodeBadVers:
		return Replayed{}, false // it is about the question's form, which Question has reported
	}
	q := msg.Question[0]
	name, err := hostname.Parse(q.Name)
	if err != nil {
		return Replayed{}, false
	}
	s := decideName(r.judge, r, name, q.Qtype)
	seen := Replayed{Name: name, Type: dns.Type(q.Qtype).String(), Verdict: s.verdict}
	if !answerable(q.Qtype) {
		seen.Verdict = egress.Verdict{Reason: egress.ReasonInvalid, Name: name}
	}
	if !seen.Verdict.Allowed() {
		return seen, true
	}
	if m, ok := r.hosts[name]; ok {
		r.mapAnswers(m, msg.Answer, &seen)
		return seen, true
	}
	f := filter{judge: r.judge, pins: r.pins, ipv6: true, host: s.host, owner: s.name.String() + ".", qtype: q.Qtype}
	err = f.run(msg)
	seen.Removed = f.removed
	switch {
	case f.rebinds(err):
		seen.Verdict.Action, seen.Verdict.Reason = egress.Deny, egress.ReasonRebinding
	case err == nil:
		seen.Addrs = f.addrs
		r.pin(s.host, f.addrs, f.ttl)
	}
	return seen, true
}

// Given pins addresses that a capture says a name has, without the answer: a name record. They count
// for as long as any pin can.
func (r *Replay) Given(name hostname.Name, addrs []netip.Addr) {
	if m, ok := r.hosts[name]; ok {
		r.remember(m, addrs)
		return
	}
	if !judgeHost(r.judge, name).Allowed() {
		return
	}
	f := filter{judge: r.judge, pins: r.pins, host: name}
	for _, a := range addrs {
		f.address(a.AsSlice())
	}
	r.pin(name, f.addrs, r.most)
	if len(f.addrs) == 0 && len(f.removed) > 0 && len(r.refused) < maxReplayMapped {
		r.refused[name] = struct{}{}
	}
}

// Resolve is Guard.Resolve by what the capture told so far: the verdict on name, and its addresses, none
// if the capture has none.
func (r *Replay) Resolve(name hostname.Name) ([]netip.Addr, egress.Verdict) {
	verdict := decideName(r.judge, r, name, dns.TypeA).verdict
	if !verdict.Allowed() {
		return nil, verdict
	}
	addrs := r.pins.Addrs(name)
	if _, ok := r.hosts[name]; ok {
		addrs = nil
		for a, m := range r.mapped {
			if m.Name == name {
				addrs = append(addrs, a)
			}
		}
	}
	if _, refused := r.refused[name]; refused && len(addrs) == 0 {
		verdict.Action, verdict.Reason = egress.Deny, egress.ReasonRebinding
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	return addrs, verdict
}

func (r *Replay) pin(host hostname.Name, addrs []netip.Addr, ttl time.Duration) {
	if len(addrs) > 0 {
		r.pins.put(host, addrs, max(min(ttl, r.most), r.lowest))
	}
}

func (r *Replay) mapAnswers(m policies.HostMapping, answer []dns.RR, seen *Replayed) {
	for _, rr := range answer {
		var raw []byte
		switch rr := rr.(type) {
		case *dns.A:
			raw = rr.A.To4()
		case *dns.AAAA:
			raw = rr.AAAA
		}
		if a, ok := netip.AddrFromSlice(raw); ok {
			seen.Addrs = append(seen.Addrs, a)
		}
	}
	r.remember(m, seen.Addrs)
}

// remember ties the addresses of [hosts] to their line: they are what the recorded gateway gave out, and
// only if they are of its own ranges.
func (r *Replay) remember(m policies.HostMapping, addrs []netip.Addr) {
	for _, a := range addrs {
		if a = plain(a); (mappedV4.Contains(a) || mappedV6.Contains(a)) && len(r.mapped) < maxReplayMapped {
			r.mapped[a] = m
		}
	}
}
