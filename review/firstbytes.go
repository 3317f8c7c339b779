package review

import (
	"slices"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
)

const (
	// maxFirst bounds the client's bytes that are kept: later bytes don't change the verdict.
	maxFirst = session.MaxFirst
	// maxPending bounds the connections whose first bytes are awaited at a time; beyond it they are reported
	// as undecided.
	maxPending = 16384
	// maxUnused bounds the buffers that are kept for reuse by later connections.
	maxUnused = 64
)

// pending is a connection whose client must say something first.
type pending struct {
	stream
	sessions [maxJudges]*session.Session
	open     [maxJudges]bool // judges whose session needs bytes
	web      [maxJudges]bool // judges that judge each request that follows
	asks     bool            // it is a request to the explicit proxy, not answered yet
	tunnels  bool            // the answer to it is that of a CONNECT
	// proxySteps are the last steps of the sessions of such a request.
	proxySteps [maxJudges]session.Step
	refused    *capture.Verdict // of the name that was asked for, as it was recorded
	first      []byte
	since      int64 // when the gateway began to read it
}

// firstBytes are the connections whose clients' first bytes are awaited.
type firstBytes struct {
	live   map[uint32]*pending
	unused unused
	now    int64 // of the packet at hand

	verdicts *verdicts
	follows  *follows
	names    *nameRows
}

// keepSession keeps a session that needs the client's next bytes.
func (p *pending) keepSession(place int, s *session.Session, step *session.Step) {
	p.sessions[place], p.open[place], p.web[place] = s, step.Action == session.NeedBytes, isWeb(s, step)
}

// said takes a segment that the client sent.
func (r *firstBytes) said(id uint32, p *pending, h *capture.Headers, cutOff bool) {
	if r.expired(p) {
		r.expire(id, p)
		if r.verdicts.table.row(id).flags&followed != 0 {
			r.follows.next(id, h, cutOff)
		}
		return
	}
	stood := p.stands
	switch taken := p.take(h, maxFirst-len(p.first), p.keep); {
	case !taken:
		r.settle(id, p, session.More)
		return
	case p.broken:
		r.settle(id, p, session.Gone)
		return
	case !p.stands:
		return
	case !stood:
		p.since = r.now
	}
	if !p.opening && r.sniff(id, p) {
		if r.verdicts.table.row(id).flags&followed != 0 { // of this segment, too, there may be more
			r.follows.next(id, h, cutOff)
		}
		return
	}
	if cutOff || len(r.live) > maxPending {
		r.settle(id, p, session.More)
	}
}

// sniff gives what a client has said to the sessions that need it; it reports whether the wait is over.
func (r *firstBytes) sniff(id uint32, p *pending) bool {
	end := session.More
	if p.closed {
		end = session.Silent
	}
	if p.asks {
		if r.ask(p); p.closed && p.sessions[byPolicy].Asks() {
			r.proxyResult(id, p, end)
			return true
		}
		return false
	}
	if !r.decide(id, p, end) {
		return false
	}
	r.forget(id, p)
	return true
}

// keep appends the client's next bytes, up to maxFirst.
func (p *pending) keep(data []byte) (used int) {
	data = data[:min(len(data), maxFirst-len(p.first))]
	p.first = append(p.first, data...)
	return len(data)
}

// decide gives the client's bytes to the sessions that need them; it reports whether none is left.
func (r *firstBytes) decide(id uint32, p *pending, end session.Ending) bool {
	left := false
	for place, s := range p.sessions {
		if !p.open[place] {
			continue
		}
		step := s.Data(p.first, end)
		p.keepSession(place, s, &step)
		if p.open[place] {
			left = true
			continue
		}
		r.verdicts.keep(id, place, s, &step)
	}
	return !left
}

// expired reports whether the gateway's time limit for the client's bytes is over.
func (r *firstBytes) expired(p *pending) bool {
	reads := !p.asks || p.sessions[byPolicy].Asks() // else it waits for an answer itself
	return p.stands && reads && time.Duration(r.now-p.since) > session.PeekTimeout
}

// expire decides with what the client has said.
func (r *firstBytes) expire(id uint32, p *pending) {
	r.decide(id, p, session.Silent)
	r.forget(id, p)
}

// end ends the wait because the connection is over, or the capture.
func (r *firstBytes) end(id uint32, p *pending) {
	if r.expired(p) {
		r.expire(id, p)
	} else {
		r.settle(id, p, session.More)
	}
}

// settle ends the wait: the client sends no more, or the capture has no more.
func (r *firstBytes) settle(id uint32, p *pending, end session.Ending) {
	if p.asks {
		r.proxyResult(id, p, end)
	}
	if r.live[id] == p { // else that was the end of it
		if end == session.Gone || end == session.Silent && len(p.early) == 0 { // else the capture lacks what is before them
			r.decide(id, p, end)
		}
		if slices.Contains(p.open[:], true) {
			r.verdicts.table.row(id).flags |= cut
		}
		r.unlearned(id, p)
		r.forget(id, p)
	}
}

// unlearned tells the learner of a connection of which the capture lacks the bytes that decide.
func (r *firstBytes) unlearned(id uint32, p *pending) {
	if p.open[byLearner] {
		f := p.sessions[byLearner].Judged().Flow
		r.verdicts.decided(id, byLearner, &f, egress.Verdict{Action: egress.Peek})
	}
}

// unused are pending values whose wait is over, for reuse.
type unused []*pending

// pending returns one whose next byte has the sequence number next.
func (u *unused) pending(next uint32, lenient bool) *pending {
	n := len(*u)
	if n == 0 {
		return &pending{stream: stream{next: next, lenient: lenient}}
	}
	p := (*u)[n-1]
	*u = (*u)[:n-1]
	*p = pending{stream: stream{next: next, lenient: lenient}, first: p.first[:0]}
	return p
}

// forget ends the wait; from then on requests are followed, if there are any. Its memory serves another
// connection.
func (r *firstBytes) forget(id uint32, p *pending) {
	delete(r.live, id)
	if slices.Contains(p.web[:], true) {
		r.follows.begin(id, p)
	}
	if len(r.unused) < maxUnused {
		r.unused = append(r.unused, p)
	}
}
