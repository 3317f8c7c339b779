package dnsguard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// Errors of Resolve. Each comes with a sentence that says which name and why.
var (
	// ErrRefused says that the policy doesn't let the name out, that the
	// answer held nothing but addresses it may not have, or that a bound is
	// reached.
	ErrRefused = errors.New("name refused")
	// errNoAddress says that the name doesn't exist or has no address.
	errNoAddress = errors.New("no address")
	// errUpstream says that no upstream had an answer.
	errUpstream = errors.New("no answer from upstream")
)

// RefusedError is ErrRefused with what it is about.
type RefusedError struct {
	name   hostname.Name
	Reason egress.Reason
	text   string
}

// Error implements error.
func (e *RefusedError) Error() string {
	return ErrRefused.Error() + ": " + e.name.Display() + ": " + e.text
}

// Unwrap returns ErrRefused.
func (e *RefusedError) Unwrap() error { return ErrRefused }

// Answer answers one message as a guest's would be, without the rate limit, and
// explains it. The answer holds an Extended DNS Error if msg has EDNS. It is nil
// when ctx ends first, or when msg can't be packed or is an answer itself.
func (g *Guard) Answer(ctx context.Context, msg *dns.Msg) (*dns.Msg, Explanation) {
	packet, err := msg.Pack()
	if err != nil {
		return nil, Explanation{Outcome: OutcomeRefusedQuery, Text: err.Error()}
	}
	g.stats.queries.Add(1)
	start := g.clock()
	q := new(wire.Question)
	if len(packet) > maxQuery || q.Read(packet) != nil {
		answer := new(dns.Msg)
		raw := g.refuseShape(packet, flowEnds{})
		if raw == nil || answer.Unpack(raw) != nil {
			return nil, Explanation{Outcome: OutcomeRefusedQuery}
		}
		return answer, Explanation{Outcome: OutcomeRefusedQuery}
	}
	r, cached := g.answer(ctx, g.epoch.Load(), q)
	if r == nil {
		return nil, Explanation{Outcome: OutcomeFailed, Text: ctx.Err().Error()}
	}
	now := g.clock()
	g.emit(r, flowEnds{}, cached, now-start)
	answer := new(dns.Msg)
	if err := answer.Unpack(r.render(nil, q, now, wire.MaxMessage)); err != nil {
		return nil, Explanation{Outcome: OutcomeFailed, Text: err.Error()}
	}
	explained := r.explanation
	explained.Cached, explained.Latency = cached, now-start
	return answer, explained
}

// Resolve returns the addresses of name, IPv4 first, by the same judgement and
// with the same pins as a guest's own question. For a name of [hosts] they are
// the mapped ones; see Mapped. What must be asked upstream counts against the
// sandbox's rate: it is the guest who makes the proxy ask.
func (g *Guard) Resolve(ctx context.Context, name hostname.Name) ([]netip.Addr, error) {
	if name.IsZero() {
		return nil, &RefusedError{Reason: egress.ReasonInvalid, text: "there is no name"}
	}
	six := make(chan *reply, 1)
	go func() { six <- g.resolveType(ctx, name, dns.TypeAAAA) }()
	v4, v6 := g.resolveType(ctx, name, dns.TypeA), <-six
	if v4 == nil || v6 == nil {
		return nil, ctx.Err()
	}
	addrs := make([]netip.Addr, 0, len(v4.addrs)+len(v6.addrs))
	addrs = append(append(addrs, v4.addrs...), v6.addrs...)
	if len(addrs) > 0 {
		return addrs, nil
	}
	return nil, resolveError(name, v4, v6)
}

// resolveType answers one type for Resolve; nil if ctx ended.
func (g *Guard) resolveType(ctx context.Context, name hostname.Name, qtype uint16) *reply {
	g.stats.queries.Add(1)
	start := g.clock()
	q := newQuestion(name, qtype)
	e := g.epoch.Load()
	var r *reply
	cached := false
	if r = e.cache.get(q.CacheKey(), start); r != nil {
		cached = true
	} else if !e.bucket.take(start) {
		g.limited(tooManyASecond, flowEnds{})
		return g.tooMany(q, subject{}, tooManyASecond)
	} else if r, _ = g.answer(ctx, e, q); r == nil { // the client left: the question was asked all the same
		g.emit(g.failed(q, subject{}, context.Canceled), flowEnds{}, false, g.clock()-start)
		return nil
	}
	g.emit(r, flowEnds{}, cached, g.clock()-start)
	return r
}

// newQuestion is the question that a guest would ask.
func newQuestion(name hostname.Name, qtype uint16) *wire.Question {
	packet := []byte{0, 0, wire.FlagRD, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for _, label := range name.Labels() {
		packet = append(append(packet, byte(len(label))), label...)
	}
	packet = append(packet, 0, byte(qtype>>8), byte(qtype), 0, byte(dns.ClassINET))
	q := new(wire.Question)
	_ = q.Read(packet) // a Name always fits
	return q
}

// resolveError says why neither type has an address: the first that isn't
// plainly absent decides.
func resolveError(name hostname.Name, replies ...*reply) error {
	for _, r := range replies {
		text := strings.TrimPrefix(r.explanation.Text, "denied: ")
		switch r.explanation.Outcome {
		case OutcomeAnswered, OutcomeEmpty, OutcomeNoName, OutcomeLocal:
			continue
		case OutcomeFailed:
			return fmt.Errorf("%w: %s: %s", errUpstream, name.Display(), text)
		case OutcomeRefusedName, OutcomeRefusedQuery, OutcomeRebinding, OutcomeLimited:
		}
		return &RefusedError{name: name, Reason: r.reason, text: text}
	}
	return fmt.Errorf("%w: %s", errNoAddress, name.Display())
}
