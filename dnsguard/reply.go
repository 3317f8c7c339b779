package dnsguard

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
)

// reply is what a question is answered with, packed once: for each guest that
// asks, id, flags, the name's spelling, TTLs and OPT are patched into a copy.
type reply struct {
	// body is the records of the answer and authority sections as they stand
	// behind the question; names in it point to the question at offset 12.
	body        []byte
	answers, ns uint16
	rcode       int
	// ttlOffsets are the places of the records' TTLs in body.
	ttlOffsets []uint16
	// ede is an Extended DNS Error option as on the wire; nil for none.
	ede []byte
	// ttlUntil is when the TTL in the guest's answer ends; cacheUntil is 0 for a
	// reply that isn't cached.
	ttlUntil, cacheUntil time.Duration
	// addrs are the addresses in the answer; pinned tells whether they still
	// are.
	addrs  []netip.Addr
	pinned receipt

	// explanation, reason and detail are what emit makes the audit event of:
	// an event kept whole would double what an answer in the cache costs.
	explanation Explanation
	reason      egress.Reason
	detail      audit.DNSDetail
}

// pinsCurrent reports whether every address of the reply is still pinned.
func (r *reply) pinsCurrent() bool { return r.pinned.current() }

// ttl is the TTL of an answer at the time now: what is left of the pin,
// rounded up so that it is never shorter than the pin.
func (r *reply) ttl(now time.Duration) uint32 {
	left := r.ttlUntil - now
	if left <= 0 {
		return 0
	}
	return uint32((left + time.Second - 1) / time.Second)
}

// render appends the whole message that answers q to out[:0]. limit bounds it;
// above it the message is empty with TC set, and the guest comes back by TCP.
func (r *reply) render(out []byte, q *wire.Question, now time.Duration, limit int) []byte {
	out = append(out[:0], q.Packet[:q.NameEnd+4]...)
	out[2] = wire.FlagQR | q.Packet[2]&wire.FlagRD
	out[3] = wire.FlagRA | q.Packet[3]&wire.FlagCD | byte(r.rcode&wire.MaskRcode)
	opt := r.ede
	size := len(out) + len(r.body)
	if q.EDNS {
		size += wire.OPTLen + len(opt)
	}
	answers, ns := r.answers, r.ns
	if size > limit {
		out[2] |= wire.FlagTC
		answers, ns = 0, 0
		if len(out)+wire.OPTLen+len(opt) > limit {
			opt = nil
		}
	} else {
		start := len(out)
		out = append(out, r.body...)
		ttl := r.ttl(now)
		for _, off := range r.ttlOffsets {
			binary.BigEndian.PutUint32(out[start+int(off):], ttl)
		}
	}
	binary.BigEndian.PutUint16(out[6:], answers)
	binary.BigEndian.PutUint16(out[8:], ns)
	binary.BigEndian.PutUint16(out[10:], 0)
	if q.EDNS {
		out[11] = 1
		out = wire.AppendOPT(out, r.rcode, opt)
	}
	return out
}

// newReply returns a reply without records that says t.
func (g *Guard) newReply(q *wire.Question, t replySpec) *reply {
	r := &reply{rcode: t.rcode}
	if t.text != "" {
		r.ede = wire.PackEDE(t.ede, t.text)
	}
	s, v := t.subject, t.subject.verdict
	r.explanation = Explanation{
		Outcome: t.outcome,
		EDE:     t.ede,
		HasEDE:  t.text != "",
		Text:    t.text,
		Verdict: v,
	}
	name := s.name.String()
	if name == "" {
		name = presentation(q)
	}
	r.detail = audit.DNSDetail{Name: name, Type: dns.Type(q.Type).String(), Outcome: dns.RcodeToString[t.rcode]}
	r.reason = t.reason
	if r.reason == egress.ReasonNone {
		r.reason = v.Reason
	}
	return r
}

// presentation is the name of q with odd bytes escaped, for the audit log.
func presentation(q *wire.Question) string {
	name, _, _ := dns.UnpackDomainName(q.WireName(), 0) // it was read, so that it is well formed
	return name
}

func (r *reply) setUpstream(from string) {
	r.explanation.Upstream, r.detail.Upstream = from, from
}
