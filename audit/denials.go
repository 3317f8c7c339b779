package audit

import (
	"cmp"
	"slices"
	"strings"
	"sync"
)

const (
	// maxDenials is how many destinations a summary keeps apart: the newest. What is denied beyond them is counted only.
	maxDenials = 64
	// maxListed is how many of them Summary lists.
	maxListed = 8
	// maxDenied is how many bytes of a name or path it keeps: the longest name of DNS has 253.
	maxDenied = 253
	// maxMethod is how many bytes of a method, and maxWhy of a resolver's error.
	maxMethod, maxWhy = 32, 200
)

// Denied reports whether ev is about something that was kept from the guest, or that report mode let through in spite of
// the rules. What the frame guard threw away is no verdict.
func (ev *Event) Denied() bool {
	switch ev.Kind { //nolint:exhaustive // the others are no verdicts
	case FlowOpen, DNSQuery, HTTPRequest, SecretViolation, Limit:
		return ev.Action == "deny" || ev.WouldDeny
	case DNSRebinding:
		return true
	}
	return false
}

// Denial is one destination that was denied.
type Denial struct {
	// Host is the name that the guest asked for, else the address; as the guest wrote it, and hostile.
	Host string `json:"host"`
	// Port is 0 for a question, Proto is "tcp", "udp" or "icmp".
	Port   uint16 `json:"port,omitempty"`
	Proto  string `json:"proto,omitempty"`
	Reason string `json:"reason"`
	Rule   string `json:"rule,omitempty"`
	// Method and Path are of a request that its rule's methods or paths refuse.
	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"`
	// DNS marks a question.
	DNS bool `json:"dns,omitempty"`
	// Count is how many verdicts there were; a name counts once, however often it is asked for.
	Count uint64 `json:"count"`

	would bool   // let through by report mode, and counted apart
	last  uint64 // when it was denied last, in verdicts
}

// DenialSummary is what was denied in a sandbox's life, bounded.
type DenialSummary struct {
	// Denied counts verdicts; WouldDeny those that report mode let through. A name counts once, however often it is asked
	// for: clients ask for its IPv4 and its IPv6 addresses, and again.
	Denied    uint64 `json:"denied,omitempty"`
	WouldDeny uint64 `json:"would_deny,omitempty"`
	// List has the destinations in the order in which they came first, Others counts the verdicts on all others.
	List   []Denial `json:"list,omitempty"`
	Others uint64   `json:"others,omitempty"`
	// Apart is how many destinations were kept apart, those of List among them; there may be more of which Others counts
	// the verdicts.
	Apart int `json:"apart,omitempty"`
	// Unresolved are allowed names that have no address, in the order in which they were asked for, bounded as List is.
	Unresolved []Unresolved `json:"unresolved,omitempty"`
}

// Unresolved is a name that the policy allows and that did not resolve.
type Unresolved struct {
	// Host is as the guest wrote it, and hostile.
	Host string `json:"host"`
	// Why is the resolver's error; "" if there is no such name (NXDOMAIN).
	Why string `json:"why,omitempty"`
}

// Denials is a Sink that sums up what is denied, in bounded memory.
type Denials struct {
	mu      sync.Mutex
	summary DenialSummary
	all     []Denial // in the order in which they came first
	dropped uint64   // of summary.Others, the verdicts that report mode let through
	clock   uint64
	lost    []Unresolved
}

var _ Sink = (*Denials)(nil)

// Emit implements Sink.
func (d *Denials) Emit(ev Event) {
	if ev.Kind == DNSQuery && ev.DNS != nil && ev.Action == "allow" {
		d.resolved(ev.DNS, ev.Message)
	}
	if !ev.Denied() || besides(&ev) {
		return
	}
	n := max(ev.Count, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	to, ok := denialOf(&ev)
	to.would = ev.WouldDeny
	i := -1
	if ok {
		i = slices.IndexFunc(d.all, func(have Denial) bool { have.Count, have.last = 0, 0; return have == to })
	}
	d.clock++
	if i >= 0 && to.DNS {
		d.all[i].last = d.clock
		return
	}
	if ev.WouldDeny {
		d.summary.WouldDeny += n
	} else {
		d.summary.Denied += n
	}
	switch {
	case !ok:
		d.forget(&Denial{Count: n, would: to.would})
	case i >= 0:
		d.all[i].Count += n
		d.all[i].last = d.clock
	default:
		if len(d.all) == maxDenials {
			old := slices.MinFunc(d.all, func(a, b Denial) int { return cmp.Compare(a.last, b.last) })
			d.forget(&old)
			d.all = slices.DeleteFunc(d.all, func(have Denial) bool { return have.last == old.last })
		}
		to.Count, to.last = n, d.clock
		d.all = append(d.all, to)
	}
}

// forget counts a destination's verdicts without it; d.mu is held.
func (d *Denials) forget(one *Denial) {
	d.summary.Others += one.Count
	if one.would {
		d.dropped += one.Count
	}
}

// besides reports whether a denial comes beside the event that it is counted by: a violation beside its request's, the
// rebinding of an answer that was refused as a whole beside its question's.
func besides(ev *Event) bool {
	return ev.Kind == SecretViolation || ev.Kind == DNSRebinding && ev.DNS != nil && ev.DNS.Outcome == "REFUSED"
}

// denialOf is where ev's guest wanted to go; merged events of a flood don't hold that.
func denialOf(ev *Event) (Denial, bool) {
	d := Denial{Port: ev.Port, Proto: ev.Proto, Reason: ev.Reason, Rule: ev.Rule}
	switch {
	case ev.DNS != nil:
		d.Host, d.Port, d.Proto, d.DNS = ev.DNS.Name, 0, "", true
	case ev.Host != "":
		d.Host = ev.Host
	case ev.SNI != "":
		d.Host = ev.SNI
	case len(ev.Names) > 0:
		d.Host = ev.Names[0]
	case ev.Dst.IsValid():
		d.Host = ev.Dst.String()
	}
	if ev.Reason == "method_not_allowed" || ev.Reason == "path_not_allowed" {
		d.Method, d.Path = strings.Clone(cut(ev.Method, maxMethod)), strings.Clone(cut(ev.Path, maxDenied))
	}
	d.Host = strings.Clone(cut(d.Host, maxDenied)) // the event's buffer isn't held
	return d, d.Host != ""
}

// resolved notes what became of a question for an address that the policy allows. What msb answers by itself, and the
// names of addresses, are not noted.
func (d *Denials) resolved(q *DNSDetail, message string) {
	if q.Type != "A" && q.Type != "AAAA" || strings.HasSuffix(strings.ToLower(strings.TrimSuffix(q.Name, ".")), ".arpa") {
		return
	}
	host := cut(q.Name, maxDenied)
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.lost, func(u Unresolved) bool { return u.Host == host })
	switch {
	case q.Outcome == "NOERROR" && len(q.Answers) > 0 && at >= 0: // a server that was away is back
		d.lost = slices.Delete(d.lost, at, at+1)
	case at >= 0 || len(d.lost) == maxListed:
	case q.Outcome == "SERVFAIL":
		d.lost = append(d.lost, Unresolved{strings.Clone(host), strings.Clone(cut(message, maxWhy))})
	case q.Outcome == "NXDOMAIN" && q.Upstream != "":
		d.lost = append(d.lost, Unresolved{Host: strings.Clone(host)})
	}
}

// Summary is what was denied until now. A question whose name was denied at a port too is left out of its list: it is
// the same attempt.
func (d *Denials) Summary() DenialSummary {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.summary
	s.Unresolved = slices.Clone(d.lost)
	for i := range d.all {
		one := d.all[i]
		if d.again(&one) {
			continue
		}
		s.Apart++
		if len(s.List) == maxListed {
			s.Others += one.Count
			continue
		}
		one.last = 0
		s.List = append(s.List, one)
	}
	return s
}

// Newest is Summary with all destinations that are kept apart, the newest first, and with counts that add up: those of
// List and Others together are Denied and WouldDeny. What is left out of the list as the same attempt isn't counted.
func (d *Denials) Newest() DenialSummary {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := DenialSummary{Others: d.summary.Others, Denied: d.summary.Others - d.dropped, WouldDeny: d.dropped, Unresolved: slices.Clone(d.lost)}
	all := slices.Clone(d.all)
	slices.SortFunc(all, func(a, b Denial) int { return cmp.Compare(b.last, a.last) })
	for i := range all {
		one := all[i]
		if d.again(&one) {
			continue
		}
		if one.would {
			s.WouldDeny += one.Count
		} else {
			s.Denied += one.Count
		}
		one.last = 0
		s.List = append(s.List, one)
	}
	s.Apart = len(s.List)
	return s
}

// again reports whether a question's name was denied at a port too; d.mu is held.
func (d *Denials) again(one *Denial) bool {
	return one.DNS && slices.ContainsFunc(d.all, func(o Denial) bool { return !o.DNS && o.Host == one.Host })
}

// Empty reports whether nothing was denied, and every allowed name resolved.
func (s *DenialSummary) Empty() bool {
	return cmp.Or(s.Denied, s.WouldDeny) == 0 && len(s.Unresolved) == 0
}
