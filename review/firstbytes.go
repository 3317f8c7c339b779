package review

import (
	"slices"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/clienthello"
)

const (
	// maxFirst bounds the client's bytes that are kept: the gateway reads no further either.
	maxFirst = clienthello.MaxBytes + 4096
	// maxPending bounds the connections whose first bytes are awaited at a time; beyond it they are told
	// as undecided.
	maxPending = 16384
	// maxUnused bounds the memory that is kept for connections to come.
	maxUnused = 64
)

// pending is a connection that must say its name first.
type pending struct {
	stream
	flows   [maxJudges]egress.Flow
	open    [maxJudges]bool
	web     [maxJudges]bool  // what follows are requests, which are judged one by one
	asks    bool             // it is a request to the explicit proxy, not answered yet
	refused *capture.Verdict // of the name that was asked for, as it was recorded
	first   []byte
	fin     bool
	finAt   uint32
}

// said takes a segment of the client's. Segments may come late, twice or overlapping: the first copy of
// a byte counts, as in the gateway's stack.
func (r *reviewer) said(id uint32, p *pending, h *capture.Headers, cutOff bool) {
	if h.Flags&capture.RST != 0 {
		r.settle(id, p, true)
		return
	}
	seq := h.Seq
	if h.Flags&capture.SYN != 0 {
		seq++
	}
	if h.Flags&capture.FIN != 0 {
		p.fin, p.finAt = true, seq+uint32(len(h.Payload))
	}
	if len(h.Payload) > 0 {
		if !p.take(seq, h.Payload, maxFirst-len(p.first), p.keep) {
			r.settle(id, p, false)
			return
		}
		if cutOff {
			r.table.row(id).flags |= cut
		}
	}
	if !p.asks && r.decide(id, p, p.fin && p.next == p.finAt) {
		r.forget(id, p)
		if r.table.row(id).flags&followed != 0 { // of this segment, too, there may be more
			r.goesOn(id, h, cutOff)
		}
	} else if cutOff || len(r.pending) > maxPending {
		r.settle(id, p, false)
	}
}

// keep keeps what comes next, as far as it is read.
func (p *pending) keep(data []byte) (used int) {
	data = data[:min(len(data), maxFirst-len(p.first))]
	p.first = append(p.first, data...)
	return len(data)
}

// decide asks the judges that wait; it reports whether none is left.
func (r *reviewer) decide(id uint32, p *pending, end bool) bool {
	if len(p.first) == 0 && !end {
		return false
	}
	end = end || len(p.first) >= maxFirst
	left := false
	for place, j := range r.judges {
		if !p.open[place] {
			continue
		}
		f := p.flows[place]
		v, more := j.First(&f, p.first, end)
		if more {
			left = true
			continue
		}
		p.open[place] = false
		p.flows[place] = f
		r.decided(id, place, &f, v)
		p.web[place] = v.Action == egress.Inspect && f.App == egress.AppHTTP
	}
	return !left
}

// settle ends the wait: because the client is gone (end), or because the capture doesn't tell more.
func (r *reviewer) settle(id uint32, p *pending, end bool) {
	if p.asks {
		r.answered(id, p, end)
	}
	if end && len(p.early) == 0 {
		r.decide(id, p, true)
	}
	for place := range p.open {
		if p.open[place] {
			r.table.row(id).flags |= cut
		}
	}
	if p.open[byLearner] { // there is nothing to learn from it, which is said
		r.decided(id, byLearner, &p.flows[byLearner], egress.Verdict{Action: egress.Peek})
	}
	r.forget(id, p)
	if end {
		r.unfollow(id)
	}
}

// newPending returns a pending whose next byte has the sequence number next.
func (r *reviewer) newPending(next uint32) *pending {
	n := len(r.unused)
	if n == 0 {
		return &pending{stream: stream{next: next}}
	}
	p := r.unused[n-1]
	r.unused = r.unused[:n-1]
	*p = pending{stream: stream{next: next}, first: p.first[:0]}
	return p
}

// forget ends the wait; from then on requests are followed, if there are any. Its memory serves another
// connection, unless it is much.
func (r *reviewer) forget(id uint32, p *pending) {
	delete(r.pending, id)
	if slices.Contains(p.web[:], true) {
		r.follow(id, p)
	}
	if len(r.unused) < maxUnused && cap(p.first) <= maxFirst && cap(p.early) == 0 {
		r.unused = append(r.unused, p)
	}
}
