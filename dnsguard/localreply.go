package dnsguard

import (
	"net/netip"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// replySpec is what a reply says beside its records.
type replySpec struct {
	outcome Outcome
	rcode   int
	subject subject
	// ede and text explain a reply that isn't what was hoped for; text is ""
	// for one that is.
	ede    uint16
	text   string
	reason egress.Reason // "" of the verdict's if none
}

// refuseQuery refuses a question whatever its name is allowed.
func (g *Guard) refuseQuery(q *wire.Question, ede uint16, text string) *reply {
	return g.newReply(q, replySpec{
		outcome: OutcomeRefusedQuery,
		rcode:   dns.RcodeRefused,
		ede:     ede,
		text:    text,
		reason:  egress.ReasonInvalid,
	})
}

// refuseName refuses a name with the rule that denies it (Blocked), or with the
// lack of one that allows it (Prohibited). The response code is NXDOMAIN, which ends a lookup in every client:
// musl ignores REFUSED and waits until it times out, glibc asks again and reports a temporary failure, and Go
// reports a misbehaving server. There is no SOA record, so that nobody caches it past a reload (RFC 2308, section 5).
func (g *Guard) refuseName(q *wire.Question, s subject) *reply {
	ede := dns.ExtendedErrorCodeBlocked
	if s.verdict.Reason == egress.ReasonNoRule {
		ede = dns.ExtendedErrorCodeProhibited
	}
	return g.newReply(q, replySpec{
		outcome: OutcomeRefusedName,
		rcode:   dns.RcodeNameError,
		subject: s,
		ede:     ede,
		text:    s.verdict.Message(),
	})
}

// refuseTunnel refuses one more question below a wildcard.
func (g *Guard) refuseTunnel(q *wire.Question, s subject) *reply {
	return g.newReply(q, replySpec{
		outcome: OutcomeLimited,
		rcode:   dns.RcodeRefused,
		subject: s,
		ede:     dns.ExtendedErrorCodeProhibited,
		text:    "too many questions below one wildcard in ten minutes; name the hosts in rules of their own",
		reason:  egress.ReasonLimit,
	})
}

// refuseSpent refuses a question because the sandbox may send nothing more.
func (g *Guard) refuseSpent(q *wire.Question, s subject, err error) *reply {
	return g.newReply(q, replySpec{
		outcome: OutcomeLimited,
		rcode:   dns.RcodeRefused,
		subject: s,
		ede:     dns.ExtendedErrorCodeProhibited,
		text:    err.Error(),
		reason:  egress.ReasonLimit,
	})
}

// Texts of the two refusals for a rate, after which a guest may try again.
const (
	tooManyWaiting = "too many questions wait for an answer; ask again"
	tooManyASecond = "more questions than limits.dns_per_second allows; ask again"
)

// tooMany answers a question above the rate or the bound on those in flight:
// SERVFAIL, since asking again a moment later may work.
func (g *Guard) tooMany(q *wire.Question, s subject, text string) *reply {
	return g.newReply(q, replySpec{
		outcome: OutcomeLimited,
		rcode:   dns.RcodeServerFailure,
		subject: s,
		ede:     dns.ExtendedErrorCodeOther,
		text:    text,
		reason:  egress.ReasonLimit,
	})
}

// answerEmpty says that an allowed name has no record of the type, without a
// question to anyone: IPv6 addresses where the host has no IPv6 would only make
// clients wait for connections that can't be made.
func (g *Guard) answerEmpty(q *wire.Question, s subject) *reply {
	return g.newReply(q, replySpec{outcome: OutcomeEmpty, subject: s})
}

// answerMapped answers for a name of [hosts]. Its addresses need no pin: the
// operator chose what they lead to, see Mapped.
func (g *Guard) answerMapped(e *epoch, q *wire.Question, s subject) *reply {
	v4, v6, _ := e.hosts.addrs(s.name)
	hdr := dns.RR_Header{Name: s.name.String() + ".", Rrtype: q.Type, Class: dns.ClassINET}
	var rrs []dns.RR
	var addrs []netip.Addr
	switch q.Type {
	case dns.TypeA:
		rrs, addrs = []dns.RR{&dns.A{Hdr: hdr, A: v4.AsSlice()}}, []netip.Addr{v4}
	case dns.TypeAAAA:
		rrs, addrs = []dns.RR{&dns.AAAA{Hdr: hdr, AAAA: v6.AsSlice()}}, []netip.Addr{v6}
	default:
		return g.answerEmpty(q, s)
	}
	r := g.localReply(q, s, rrs)
	r.addrs = addrs
	return r
}

// answerReverse answers a reverse name of an address that is pinned or mapped.
func (g *Guard) answerReverse(q *wire.Question, name hostname.Name, owners []hostname.Name) *reply {
	s := subject{name: name, host: name}
	if q.Type != dns.TypePTR {
		return g.answerEmpty(q, s)
	}
	owners = owners[:min(len(owners), maxRecords)]
	rrs := make([]dns.RR, 0, len(owners))
	hdr := dns.RR_Header{Name: name.String() + ".", Rrtype: dns.TypePTR, Class: dns.ClassINET}
	for _, n := range owners {
		rrs = append(rrs, &dns.PTR{Hdr: hdr, Ptr: n.String() + "."})
	}
	return g.localReply(q, s, rrs)
}

// localReply answers with records of our own.
func (g *Guard) localReply(q *wire.Question, s subject, rrs []dns.RR) *reply {
	r := g.newReply(q, replySpec{outcome: OutcomeLocal, subject: s})
	if err := r.pack(s.name.String()+".", q.Type, rrs, nil); err != nil {
		return g.failed(q, s, err)
	}
	r.ttlUntil = g.clock() + localTTL
	r.describe(rrs)
	return r
}

// failed answers a question that no upstream has an answer to.
func (g *Guard) failed(q *wire.Question, s subject, err error) *reply {
	r := g.newReply(q, replySpec{
		outcome: OutcomeFailed,
		rcode:   dns.RcodeServerFailure,
		subject: s,
		ede:     edeOf(err),
		text:    "no answer from upstream: " + oneLine(err),
	})
	r.cacheUntil = g.clock() + failureTTL
	return r
}
