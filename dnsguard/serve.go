package dnsguard

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/msb-project/msb/dnsguard/wire"
)

// session is one flow or listener whose queries are being answered.
type session struct {
	g    *Guard
	ends flowEnds
	// udp says that answers are bounded by what the query says it takes.
	udp bool

	mu      sync.Mutex
	over    bool
	pending sync.WaitGroup
}

// underGuard returns a context that ends with ctx and with the guard.
func (g *Guard) underGuard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(g.ctx, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// answerNow answers packet into out if that needs no wait. Otherwise it starts a
// goroutine that calls onReply with the answer, and says that one is pending. An
// answer of nil, here or there, is none. q is scratch space.
func (s *session) answerNow(packet, out []byte, q *wire.Question, onReply func([]byte)) (answer []byte, pending bool) {
	g := s.g
	g.stats.queries.Add(1)
	start := g.clock()
	e := g.epoch.Load()
	// Checked before anything else, so that a flood costs next to nothing.
	inRate := e.bucket.take(start)
	if len(packet) > maxQuery || q.Read(packet) != nil {
		if !inRate {
			g.limited(tooManyASecond, s.ends)
			return nil, false
		}
		return g.refuseShape(packet, s.ends), false
	}
	if !inRate {
		g.limited(tooManyASecond, s.ends)
		r := g.tooMany(q, subject{}, tooManyASecond)
		return r.render(out, q, start, limit(q, s.udp)), false
	}
	if r := e.cache.get(q.CacheKey(), start); r != nil {
		out = r.render(out, q, start, limit(q, s.udp))
		g.emit(r, s.ends, true, g.clock()-start)
		return out, false
	}
	r, subj := g.local(e, q)
	if r == nil {
		if r = s.wait(e, q, subj, start, onReply); r == nil {
			return nil, true
		}
	}
	g.emit(r, s.ends, false, g.clock()-start)
	return r.render(out, q, start, limit(q, s.udp)), false
}

// wait looks q up and calls onReply once, in another goroutine; or it
// returns a reply at once if there are too many of those.
func (s *session) wait(e *epoch, q *wire.Question, subj subject, start time.Duration, onReply func([]byte)) *reply {
	g := s.g
	select {
	case g.waiting <- struct{}{}:
	default:
		return g.tooMany(q, subj, tooManyWaiting)
	}
	own := *q
	own.Packet = slices.Clone(q.Packet)
	ends, udp := s.ends, s.udp // a shared socket's ends change with the next packet
	r := g.join(e, &own, subj, func(r *reply) {
		defer func() { <-g.waiting }()
		now := g.clock()
		g.emit(r, ends, false, now-start)
		if !s.enter() {
			return
		}
		defer s.pending.Done()
		onReply(r.render(nil, &own, now, limit(&own, udp)))
	})
	if r != nil {
		<-g.waiting
	}
	return r
}

// enter reports whether answers may still be delivered; leave waits for those
// that entered.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.pending.Add(1)
	return true
}

// leave ends the delivery of answers: later ones are dropped.
func (s *session) leave() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.pending.Wait()
}

// limit is how long an answer to q may be.
func limit(q *wire.Question, udp bool) int {
	if udp {
		return q.Size
	}
	return wire.MaxMessage
}

// endsOf reads the ends of a flow as the gateway's connections have them: the
// guest is the remote end, and the local one is where it sent its query.
func endsOf(proto string, conn net.Conn) flowEnds {
	ends := flowEnds{proto: proto}
	ends.srcPort = addrPortOf(conn.RemoteAddr()).Port()
	ends.dst = addrPortOf(conn.LocalAddr())
	return ends
}

func addrPortOf(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.UDPAddr:
		return a.AddrPort()
	case *net.TCPAddr:
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

// cutOnDone makes reads and writes on conn end when ctx does.
func cutOnDone(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}
