package egress

import (
	"net/netip"

	"github.com/msb-project/msb/hostname"
)

// judgeDeny is the second step. It finds a deny rule that settles the flow, or
// what must be known before anything is let through: the name, because another
// name at this address is denied, or each request, because the rule is about
// methods or paths.
func (j *judgement) judgeDeny() {
	if len(j.e.deny.all) == 0 {
		return
	}
	for _, r := range j.e.deny.anywhere {
		j.denyBy(r)
	}
	if !j.f.Mapped { // the address is the gateway's own invention
		j.denyByAddress()
	}
	j.denyByName()
}

// denyByAddress looks at the address and at every IPv4 address inside it, so
// that a denied network can't be reached through its NAT64 form.
func (j *judgement) denyByAddress() {
	j.e.deny.eachByAddr(j.dst, func(r *rule, _ netip.Prefix) { j.denyBy(r) })
	if j.dst.Is6() {
		j.denyInner(j.dst.As16())
	}
}

// denyInner applies deny rules to the IPv4 addresses inside an IPv6 one.
func (j *judgement) denyInner(b [16]byte) {
	var e embedded
	e.find(b)
	for _, inner := range e.addrs[:e.n] {
		j.e.deny.eachByAddr(netip.AddrFrom4(inner), func(r *rule, _ netip.Prefix) { j.denyBy(r) })
	}
}

// denyByName looks at the name that counts: what the client said if it is
// pinned to the address. Otherwise every name that is pinned might be meant, and
// what the client said might be too.
func (j *judgement) denyByName() {
	if !j.e.denyNames {
		return
	}
	if j.pinned {
		j.e.deny.eachByName(j.f.Name, func(r *rule, _ bool) { j.denyBy(r) })
		return
	}
	if j.f.Stage != StageConnect {
		j.e.deny.eachByName(j.f.Name, func(r *rule, _ bool) { j.denyBy(r) })
	}
	var some *rule
	all := true
	for _, n := range j.f.Pinned {
		r := j.denyRuleFor(n)
		if r == nil {
			all = false
		} else if some == nil {
			some = r
		}
	}
	switch {
	case some == nil:
	case all, j.f.Proto != TCP, j.f.Stage != StageConnect:
		j.denyFirst(some, ReasonDenyRule)
	default:
		j.mustName = some // shared address: at StageName the name decides
	}
}

// denyRuleFor returns the deny rule that settles a flow to n, and collects those
// that must see requests.
func (j *judgement) denyRuleFor(n hostname.Name) *rule {
	var by *rule
	j.e.deny.eachByName(n, func(r *rule, _ bool) {
		switch {
		case !r.carries(j.f.Proto) || !r.matchesPort(j.f.Proto, j.port):
		case r.request:
			j.denyBy(r)
		case by == nil || r.index < by.index:
			by = r
		}
	})
	return by
}

// denyBy applies a deny rule whose destination matches.
func (j *judgement) denyBy(r *rule) {
	if !r.carries(j.f.Proto) || !r.matchesPort(j.f.Proto, j.port) {
		return
	}
	if !r.request {
		j.denyFirst(r, ReasonDenyRule)
		return
	}
	if j.f.Proto != TCP || j.f.Stage != StageConnect && !r.speaks(j.f.App) && !j.mayYetSpeak(r) {
		return
	}
	if j.f.Stage == StageConnect && !r.webPort(j.port) {
		return
	}
	if j.f.Stage != StageRequest {
		if j.mustInspect == nil {
			j.mustInspect = r
		}
		return
	}
	if !r.matchesMethodFolded(j.f.Method) {
		return
	}
	if len(r.paths) > 0 {
		clean, ok := j.cleanPath()
		if !ok {
			j.denyFirst(r, ReasonPathAmbiguous)
			return
		}
		if !r.matchesPathFolded(clean) {
			return
		}
	}
	j.denyFirst(r, ReasonDenyRule)
}

// mayYetSpeak reports whether the client may speak r's protocol without being read:
// in a form that only servers take for it, or once it is relayed.
func (j *judgement) mayYetSpeak(r *rule) bool {
	return (j.f.Unclear || j.f.App == AppSilent) && r.webPort(j.port)
}

// denyFirst keeps the rule that stands first in the policy.
func (j *judgement) denyFirst(r *rule, reason Reason) {
	if j.denied == nil || r.index < j.denied.index {
		j.denied, j.denyReason = r, reason
	}
}

// namesMatter reports whether a flow that the default would let out must be
// looked into, because a deny rule by name or request may be about it.
func (j *judgement) namesMatter() bool {
	for _, r := range j.e.denyTCP {
		if r.webPort(j.port) {
			return true
		}
	}
	return false
}
