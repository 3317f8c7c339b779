package dnsguard

import (
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
)

// describe notes the addresses and names that a reply hands out.
func (r *reply) describe(rrs []dns.RR) {
	for _, rr := range rrs {
		if text := describeRR(rr); text != "" {
			r.detail.Answers = append(r.detail.Answers, text)
		}
	}
}

// describeRR is what the audit log keeps of a record: addresses and names, not
// text that a zone's owner chose.
func describeRR(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.A:
		return addrText(rr.A)
	case *dns.AAAA:
		return addrText(rr.AAAA)
	case *dns.CNAME:
		return rr.Target
	case *dns.PTR:
		return rr.Ptr
	case *dns.MX:
		return rr.Mx
	case *dns.NS:
		return rr.Ns
	case *dns.SRV:
		return rr.Target
	case *dns.HTTPS:
		return rr.Target
	case *dns.SVCB:
		return rr.Target
	}
	return ""
}

func addrText(raw []byte) string {
	addr, _ := netip.AddrFromSlice(raw)
	return addr.Unmap().String()
}

// flowEnds is where a question came from, for the audit log.
type flowEnds struct {
	proto   string
	srcPort uint16
	dst     netip.AddrPort
}

// emit writes the audit event of one question.
func (g *Guard) emit(r *reply, ends flowEnds, cached bool, latency time.Duration) {
	why, detail := &r.explanation, r.detail
	action := actionOf(why.Outcome)
	detail.Cached, detail.Latency = cached, latency
	event := audit.Event{
		Sandbox:   g.sandbox,
		Kind:      audit.DNSQuery,
		Proto:     ends.proto,
		SrcPort:   ends.srcPort,
		Dst:       ends.dst.Addr(),
		Port:      ends.dst.Port(),
		Action:    action.String(),
		WouldDeny: why.Verdict.WouldDeny && action != egress.Deny, // else nothing was let through
		Rule:      why.Verdict.Rule,
		Message:   why.Text,
		DNS:       &detail,
	}
	if r.reason != egress.ReasonNone {
		event.Reason = r.reason.String()
	}
	g.sink.Emit(event)
	if cached {
		g.stats.cached.Add(1)
	}
	g.stats.count(why.Outcome)
}

// limited counts one thing above a bound, and writes its audit event.
func (g *Guard) limited(why string, ends flowEnds) {
	g.stats.limited.Add(1)
	g.sink.Emit(audit.Event{
		Time:    time.Now(),
		Sandbox: g.sandbox,
		Kind:    audit.Limit,
		Proto:   ends.proto,
		SrcPort: ends.srcPort,
		Dst:     ends.dst.Addr(),
		Port:    ends.dst.Port(),
		Action:  egress.Deny.String(),
		Reason:  egress.ReasonLimit.String(),
		Message: why,
	})
}

// actionOf is the audit log's verdict for an outcome.
func actionOf(o Outcome) egress.Action {
	switch o {
	case OutcomeRefusedName, OutcomeRefusedQuery, OutcomeRebinding, OutcomeLimited:
		return egress.Deny
	case OutcomeAnswered, OutcomeEmpty, OutcomeNoName, OutcomeLocal, OutcomeFailed:
	}
	return egress.Allow
}
