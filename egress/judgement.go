package egress

import (
	"net/netip"

	"github.com/msb-project/msb/hostname"
)

// judgement is the work on one flow under one policy. It lives on the stack.
type judgement struct {
	e     *Engine
	f     *Flow
	trace *trace

	dst      netip.Addr
	port     uint16
	class    Class
	by       netip.Prefix // the range that opened an address which isn't public
	nameRule *rule        // a rule for a name of this special address is about the flow
	mapping  mapping      // of a mapped flow
	pinned   bool         // f.Name is among f.Pinned
	dns      bool         // a resolver of others: only a rule that names it counts

	clean     string // f.Path, clean
	cleanOK   bool
	cleanDone bool
	final     bool // a denial holds in report mode too

	// What deny rules found.
	denied      *rule
	denyReason  Reason
	mustName    *rule // some pinned names are denied: the name must show that it's another
	mustInspect *rule // a deny rule must see each request

	// What allow rules found: the first that relays, that needs the name, that
	// needs requests, and that has a secret to give.
	relay, peek, inspect, secret *rule
	// mixed says that both TLS and HTTP are inspected here: the client's first bytes tell which it is.
	mixed bool
	// closestMiss is how close a rule came, for the sentence of a denial.
	closestMiss Reason
	closestRule *rule
}

// run is the order of judgement: special ranges, deny
// rules, allow rules, default.
func (j *judgement) run() Verdict {
	if !j.prepare() {
		return j.deny(ReasonInvalid, nil)
	}
	if v, done := j.judgeRanges(); done {
		return v
	}
	j.judgeDeny()
	traceDeny(j)
	if j.denied != nil {
		return j.deny(j.denyReason, j.denied)
	}
	j.judgeAllow()
	traceAllow(j)
	switch {
	case j.f.Proto != TCP:
		return j.concludeDatagram()
	case j.f.Stage == StageConnect:
		return j.concludeConnect()
	case j.f.Stage == StageName:
		return j.concludeName()
	default:
		return j.concludeRequest()
	}
}

// prepare reports whether the flow makes sense.
func (j *judgement) prepare() bool {
	f := j.f
	j.dst, j.port = plainAddr(f.Dst.Addr()), f.Dst.Port()
	if !j.dst.IsValid() || f.Proto < TCP || f.Proto > ICMP || f.Stage > StageRequest {
		return false
	}
	if f.Proto != TCP && f.Stage != StageConnect {
		return false
	}
	if f.Stage != StageConnect && f.App == AppUnknown || f.Stage == StageRequest && f.App != AppTLS && f.App != AppHTTP {
		return false
	}
	for _, n := range f.Pinned {
		if n == f.Name && !n.IsZero() && f.Stage != StageConnect && !f.ECH {
			j.pinned = true
		}
	}
	// What contradicts the pins is refused in report mode too: secretproxy
	// might put a secret into it.
	j.final = f.Stage == StageRequest && !j.inspectable()
	return true
}

// judgeRanges is the first step, and nothing of an operator's floor: an address that isn't public goes on only if
// [hosts] leads there or a rule opens it. Report mode has no say here.
func (j *judgement) judgeRanges() (Verdict, bool) {
	if j.f.Mapped {
		j.class = ClassBenchmark
		if len(j.f.Pinned) == 1 {
			if m, ok := j.e.mapped[j.f.Pinned[0]]; ok {
				j.mapping = m
				j.trace.add("special ranges", "the address stands for the target of ", m.rule)
				return Verdict{}, false
			}
		}
		j.trace.add("special ranges", "the policy maps no such name in [hosts]")
		return j.deny(ReasonHostAddress, nil), true
	}
	j.class = j.e.classifier.class(j.dst)
	if j.f.Local && !j.class.final() {
		j.class = ClassHost
	}
	switch {
	case j.class == ClassPublic:
		j.trace.add("special ranges", "the address is public")
		return Verdict{}, false
	case j.class.final():
		j.trace.add("special ranges", "the address is ", j.class.Sentence(), ": no rule opens it")
		return j.deny(j.class.reason(), nil), true
	}
	return j.openSpecial()
}

// openSpecial looks for what opens an address that isn't public. A rule for a name
// that is pinned to it does if it lists the address in within, and has the flow for
// itself then: a private rule for the range must not let out, by its address, what
// the rule for the name refuses. Else private rules do, by the address alone.
func (j *judgement) openSpecial() (Verdict, bool) {
	var opener *rule
	for _, n := range j.f.Pinned {
		j.e.allow.eachByName(n, func(r *rule, _ bool) {
			by, ok := r.mayHave(j.dst, j.class)
			switch {
			case !ok:
			case r.covers(j.f.Proto, j.port):
				opener, j.by = r, by
				keepFirst(&j.nameRule, r)
			case j.f.Proto == UDP && r.layer7() && r.listsPort(j.port):
				keepFirst(&j.nameRule, r)
			}
		})
	}
	switch {
	case opener != nil:
		j.trace.add("special ranges", "the address is ", j.class.Sentence(), "; rule ", opener.name, " has it within the ranges of its names")
		return Verdict{}, false
	case j.nameRule != nil: // with TLS or HTTP on this port, and this is UDP
		j.final = true
		j.trace.add("special ranges", "the address is ", j.class.Sentence(), ", and rule ", j.nameRule.name, " is about TLS or HTTP on this port")
		return j.deny(ReasonQUIC, j.nameRule), true
	}
	j.e.allow.eachByAddr(j.dst, func(r *rule, by netip.Prefix) {
		if r.private && r.covers(j.f.Proto, j.port) && opensMetadata(j.class, by.IsSingleIP()) {
			opener, j.by = r, by
		}
	})
	if opener == nil {
		j.trace.add("special ranges", "the address is ", j.class.Sentence(), ", and no rule opens it here")
		return j.deny(j.class.reason(), nil), true
	}
	j.trace.add("special ranges", "the address is ", j.class.Sentence(), "; private rule ", opener.name, " covers it")
	return Verdict{}, false
}

// deny returns a denial for reason by r, which may be nil.
func (j *judgement) deny(reason Reason, r *rule) Verdict {
	return j.verdict(Deny, reason, r)
}

func (j *judgement) verdict(a Action, reason Reason, r *rule) Verdict {
	v := Verdict{
		Action: a, Reason: reason, Class: j.class, Addr: j.dst, Name: j.name(),
		Special: a != Deny && j.class != ClassPublic, Range: j.by,
	}
	if r != nil {
		v.Rule, v.Why, v.Protocol = r.name, r.why, r.proto
	}
	traceWatch(j, v)
	j.trace.verdict(v)
	return v
}

// name is the name that a verdict speaks of.
func (j *judgement) name() hostname.Name {
	switch {
	case !j.f.Name.IsZero():
		return j.f.Name
	case len(j.f.Pinned) > 0:
		return j.f.Pinned[0]
	}
	return hostname.Name{}
}

// cleanPath is CleanPath of the request, done once and only if asked for.
func (j *judgement) cleanPath() (string, bool) {
	if !j.cleanDone {
		j.clean, j.cleanOK = CleanPath(j.f.Path)
		j.cleanDone = true
	}
	return j.clean, j.cleanOK
}

// barred reports whether the policy keeps TLS connections to n closed.
func (j *judgement) barred(n hostname.Name) bool {
	return j.e.inspectNone || j.e.bypass.has(n)
}
