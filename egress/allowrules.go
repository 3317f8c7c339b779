package egress

import (
	"net/netip"

	"github.com/msb-project/msb/hostname"
)

// judgeAllow is the third step: it looks at every allow rule whose destination
// matches. Rules add up: what any of them allows is allowed.
func (j *judgement) judgeAllow() {
	j.dns = j.port == dotPort ||
		j.port == httpsPort && j.e.resolvers.hasAddr(j.dst) ||
		j.f.Stage != StageConnect && j.e.resolvers.hasName(j.f.Name)
	if !j.f.Mapped && j.nameRule == nil {
		j.e.allow.eachByAddr(j.dst, func(r *rule, by netip.Prefix) {
			if j.class == ClassPublic || r.private && opensMetadata(j.class, by.IsSingleIP()) {
				j.consider(r, hostname.Name{}, by.IsSingleIP())
			}
		})
	}
	for _, n := range j.f.Pinned {
		dns := j.e.resolvers.hasName(n)
		j.e.allow.eachByName(n, func(r *rule, exact bool) {
			_, ok := r.mayHave(j.dst, j.class)
			switch {
			case !ok && !j.f.Mapped:
				if len(r.within) > 0 {
					j.miss(ReasonWithin, r)
				}
			case dns && !exact:
				j.miss(ReasonEncryptedDNS, r)
			default:
				j.consider(r, n, exact)
			}
		})
	}
}

// consider weighs an allow rule whose destination matches: by the name n, or by
// the address if n is zero. named says that it names this destination alone.
func (j *judgement) consider(r *rule, n hostname.Name, named bool) {
	switch {
	case !r.carries(j.f.Proto):
		if j.f.Proto == UDP && r.layer7() && r.listsPort(j.port) {
			j.miss(ReasonQUIC, r)
		} else {
			j.miss(ReasonPort, r)
		}
	case !r.matchesPort(j.f.Proto, j.port):
		j.miss(ReasonPort, r)
	case j.dns && !named && !r.says853:
		j.miss(ReasonEncryptedDNS, r)
	case !r.layer7():
		keepFirst(&j.relay, r)
	case j.f.Stage == StageConnect:
		j.considerConnect(r, n)
	case !r.speaks(j.f.App):
		j.miss(ReasonProtocol, r)
	case !n.IsZero() && n != j.f.Name:
		if j.f.Name.IsZero() {
			j.miss(ReasonNoName, r)
		} // else the rule is about another name at this address
	case !n.IsZero() && j.f.ECH:
		j.miss(ReasonECH, r)
	case j.f.Stage == StageName:
		j.considerName(r, n)
	default:
		j.considerRequest(r)
	}
}

// considerConnect weighs a rule on https, http or tls before any byte is read.
func (j *judgement) considerConnect(r *rule, n hostname.Name) {
	if !r.speaks(AppTLS) { // http: requests on one connection may name many hosts
		if n.IsZero() && !r.request && !j.e.denyNames {
			keepFirst(&j.peek, r)
		} else {
			j.keepInspect(r)
		}
		return
	}
	j.considerTLS(r, n)
}

// considerName weighs a rule whose protocol and name fit what the client said.
func (j *judgement) considerName(r *rule, n hostname.Name) {
	if r.speaks(AppTLS) {
		j.considerTLS(r, n)
		return
	}
	switch {
	case n.IsZero() && !r.request && !j.e.denyNames:
		keepFirst(&j.relay, r)
	case j.inspectable():
		j.keepInspect(r)
	default:
		j.missName(r)
	}
}

// considerTLS weighs a rule on https or tls: whether the connection goes on as
// it is (after a peek, if nothing was read) or is opened.
func (j *judgement) considerTLS(r *rule, n hostname.Name) {
	closed := &j.relay
	if j.f.Stage == StageConnect {
		closed = &j.peek
	}
	if !r.http() {
		keepFirst(closed, r)
		return
	}
	secret := !n.IsZero() && j.e.secrets.has(n)
	subject := n
	if subject.IsZero() {
		subject = j.f.Name // a rule by address: what the client says is all there is
	}
	switch {
	case j.barred(subject) && r.request:
		j.miss(ReasonInspectionOff, r)
	case j.f.Stage == StageName && j.unpinnedBypass(subject):
		j.missName(r)
	case j.barred(subject), !r.request && !secret && !j.e.inspectAll && !j.watches(subject):
		keepFirst(closed, r)
	case subject.IsZero() && j.f.Stage == StageConnect && j.e.leavesSome():
		keepFirst(closed, r) // the name says whether it stays closed
	case j.f.Stage == StageName && !j.pinned:
		j.missName(r)
	default:
		j.keepInspect(r)
		if secret {
			keepFirst(&j.secret, r)
		}
	}
}

// considerRequest weighs a rule for one request.
func (j *judgement) considerRequest(r *rule) {
	switch {
	case !r.matchesMethod(j.f.Method):
		j.miss(ReasonMethod, r)
		return
	case len(r.paths) == 0:
		keepFirst(&j.relay, r)
		return
	}
	clean, ok := j.cleanPath()
	switch {
	case !ok:
		j.miss(ReasonPathAmbiguous, r)
	case !r.matchesPath(clean):
		j.miss(ReasonPath, r)
	default:
		keepFirst(&j.relay, r)
	}
}

// inspectable reports whether secretproxy may have the connection: the name is
// pinned to the address (invariant 7), or plain HTTP addresses the server by the
// very address that is dialled.
func (j *judgement) inspectable() bool {
	switch j.f.App {
	case AppTLS:
		return j.pinned && !j.barred(j.f.Name)
	case AppHTTP:
		return j.pinned || j.f.Name.IsZero()
	case AppUnknown, AppOpaque, AppSilent:
	}
	return false
}

// miss notes how close a rule came to allowing the flow; a denial names the closest.
func (j *judgement) miss(reason Reason, r *rule) {
	if closeness(reason) > closeness(j.closestMiss) {
		j.closestMiss, j.closestRule = reason, r
	}
}

// missName notes that the name doesn't fit the address.
func (j *judgement) missName(r *rule) {
	if j.f.Name.IsZero() {
		j.miss(ReasonNoName, r)
		return
	}
	if !j.pinned {
		j.miss(ReasonNotPinned, r)
	}
}

// keepInspect keeps a rule that wants the connection inspected.
func (j *judgement) keepInspect(r *rule) {
	j.mixed = j.mixed || j.inspect != nil && j.inspect.proto != r.proto
	keepFirst(&j.inspect, r)
}

// keepFirst keeps the rule that stands first in the policy.
func keepFirst(slot **rule, r *rule) {
	if *slot == nil || r.index < (*slot).index {
		*slot = r
	}
}
