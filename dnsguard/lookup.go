package dnsguard

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/upstream"
	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
)

// answer answers q, from wherever; it waits for upstreams until ctx ends, when
// it returns nil.
func (g *Guard) answer(ctx context.Context, e *epoch, q *wire.Question) (r *reply, cached bool) {
	if r := e.cache.get(q.CacheKey(), g.clock()); r != nil {
		return r, true
	}
	r, subj := g.local(e, q)
	if r == nil {
		r = g.lookup(ctx, e, q, subj)
	}
	return r, false
}

// lookup asks the upstreams and waits until ctx ends, when it returns nil.
func (g *Guard) lookup(ctx context.Context, e *epoch, q *wire.Question, subj subject) *reply {
	done := make(chan *reply, 1)
	if r := g.join(e, q, subj, func(r *reply) { done <- r }); r != nil {
		return r
	}
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
		return nil
	}
}

// join asks the upstreams, once for all who ask at the same time, and calls done
// with the reply; or it returns a reply at once and calls nothing.
// Questions of different epochs don't share: what the old judge let pass is not
// an answer under the new one. q must not change any more.
func (g *Guard) join(e *epoch, q *wire.Question, subj subject, done func(*reply)) *reply {
	if g.ctx.Err() != nil {
		return g.failed(q, subj, context.Canceled)
	}
	key := string(q.CacheKey())
	work := func() *reply {
		r := g.exchange(e, q, subj)
		if r.cacheUntil > 0 {
			g.stats.cacheEvicted.Add(uint64(e.cache.put(key, r)))
		}
		return r
	}
	if g.inflight.join(string(binary.AppendUvarint([]byte(key), e.id)), work, done) {
		return nil
	}
	return g.tooMany(q, subj, tooManyWaiting)
}

// exchange asks the upstreams, filters the answer, pins what is left and packs
// it. This is the only place that pins (invariant 6).
func (g *Guard) exchange(e *epoch, q *wire.Question, subj subject) *reply {
	if !e.tunnels.admit(subj) {
		return g.refuseTunnel(q, subj)
	}
	msg, from, err := e.upstreams.Ask(g.ctx, upstream.Query{Name: slices.Clone(q.WireName()), Type: q.Type, Spend: g.spend})
	if spent := (upstream.SpentError{}); errors.As(err, &spent) {
		return g.refuseSpent(q, subj, spent)
	}
	if err != nil {
		return g.failed(q, subj, err)
	}
	owner := subj.name.String() + "."
	f := filter{
		judge: e.judge,
		pins:  g.pins,
		ipv6:  g.hasIPv6(),
		host:  subj.host,
		owner: owner,
		qtype: q.Type,
	}
	if err := f.run(msg); err != nil {
		return g.unfit(q, subj, from, err)
	}
	if f.addressesGone() {
		return g.rebinding(q, subj, from, &f)
	}
	t := replySpec{outcome: OutcomeAnswered, rcode: f.rcode, subject: subj}
	switch {
	case f.rcode == dns.RcodeNameError:
		t.outcome = OutcomeNoName
	case !f.found:
		t.outcome = OutcomeEmpty
	}
	r := g.newReply(q, t)
	r.setUpstream(from)
	if err := r.pack(owner, q.Type, f.rrs, f.ns); err != nil {
		return g.failed(q, subj, err)
	}
	g.keep(e, r, &f, e.tunnels.metered(subj))
	r.describe(f.rrs)
	g.reportRemoved(r, subj, &f)
	return r
}

// keep sets how long r is good for and pins its addresses. The guest's TTL is
// that of the pin without its grace, so that the guest never holds an address
// longer than the pin lasts. Upstream is asked again when its own TTL ends;
// where questions are metered, not before the guest's TTL ends.
func (g *Guard) keep(e *epoch, r *reply, f *filter, metered bool) {
	now := g.clock()
	lowest, highest := ttlBounds(e.policy.DNS)
	life := min(f.ttl, highest)
	r.ttlUntil = now + life
	if life > 0 {
		r.cacheUntil = now + life
	}
	if len(f.addrs) > 0 {
		life = max(life, lowest)
		r.ttlUntil = now + life
		if metered {
			r.cacheUntil = r.ttlUntil
		}
		r.addrs = f.addrs
		r.pinned = g.pins.put(f.host, f.addrs, life)
		// A reload stores its epoch and drops pins then: what was put behind that is dropped here.
		if now := g.epoch.Load(); now != e {
			g.pins.retain(now.mayPin)
		}
	}
	r.explanation.TTL = life
}

// rebinding refuses an answer of which no address is left.
func (g *Guard) rebinding(q *wire.Question, s subject, from string, f *filter) *reply {
	r := g.newReply(q, replySpec{
		outcome: OutcomeRebinding,
		rcode:   dns.RcodeRefused,
		subject: s,
		ede:     dns.ExtendedErrorCodeBlocked,
		text:    "dns.rebinding: every address of the answer is one that " + s.host.Display() + " may not have; within in its rule says which private ranges it may",
		reason:  egress.ReasonRebinding,
	})
	r.setUpstream(from)
	g.reportRemoved(r, s, f)
	return r
}

// unfit answers for an upstream's message that can't be used as a whole.
func (g *Guard) unfit(q *wire.Question, s subject, from string, err error) *reply {
	t := replySpec{
		outcome: OutcomeFailed,
		rcode:   dns.RcodeServerFailure,
		subject: s,
		ede:     dns.ExtendedErrorCodeInvalidData,
		text:    err.Error(),
	}
	var target localTargetError
	local := errors.As(err, &target)
	if local {
		t.outcome, t.rcode, t.ede = OutcomeRebinding, dns.RcodeRefused, dns.ExtendedErrorCodeBlocked
		t.text, t.reason = "dns.rebinding: "+t.text, egress.ReasonRebinding
	}
	r := g.newReply(q, t)
	r.setUpstream(from)
	if local {
		g.emitRebinding(r, s)
	} else {
		r.cacheUntil = g.clock() + failureTTL
	}
	return r
}

// reportRemoved notes the addresses that were taken out, if any.
func (g *Guard) reportRemoved(r *reply, s subject, f *filter) {
	if len(f.removed) == 0 {
		return
	}
	g.stats.removed.Add(uint64(len(f.removed)))
	r.explanation.Removed = f.removed
	for _, addr := range f.removed {
		r.detail.Removed = append(r.detail.Removed, addr.String())
	}
	g.emitRebinding(r, s)
}

// emitRebinding writes the audit event for an answer that held what the name
// may not have. It is written when the answer comes, not again from the cache.
func (g *Guard) emitRebinding(r *reply, s subject) {
	detail := r.detail
	g.sink.Emit(audit.Event{
		Time:    time.Now(),
		Sandbox: g.sandbox,
		Kind:    audit.DNSRebinding,
		Action:  egress.Deny.String(),
		Rule:    s.verdict.Rule,
		Reason:  egress.ReasonRebinding.String(),
		Message: egress.ReasonRebinding.Sentence(),
		DNS:     &detail,
	})
}

// edeOf is the Extended DNS Error for a failure to get an answer.
func edeOf(err error) uint16 {
	var rcode upstream.RcodeError
	if errors.As(err, &rcode) {
		return dns.ExtendedErrorCodeNoReachableAuthority
	}
	return dns.ExtendedErrorCodeNetworkError
}

// oneLine puts the parts of a joined error on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
