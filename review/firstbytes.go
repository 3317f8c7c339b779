package review

import (
	"bytes"
	"slices"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/clienthello"
)

const (
	// maxFirst bounds the client's bytes that are kept: the gateway reads no further either.
	maxFirst = clienthello.MaxBytes + 4096
	// maxEarly bounds the segments of one connection that came before their turn, maxEarlyBytes what is in
	// them: some come twice.
	maxEarly      = 64
	maxEarlyBytes = 2 * maxFirst
	// maxPending bounds the connections whose first bytes are awaited at a time; beyond it they are told
	// as undecided.
	maxPending = 16384
	// maxUnused bounds the memory that is kept for connections to come.
	maxUnused = 64
)

// pending is a connection that must say its name first.
type pending struct {
	flows   [maxJudges]egress.Flow
	open    [maxJudges]bool
	head    [maxJudges]bool  // the verdict is there, the first request is awaited
	asks    bool             // it is a request to the explicit proxy, not answered yet
	refused *capture.Verdict // of the name that was asked for, as it was recorded
	next    uint32           // the sequence number of the next byte
	first   []byte
	early   []segment
	waiting int // bytes of early
	fin     bool
	finAt   uint32
}

type segment struct {
	seq  uint32
	data []byte
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
		if !p.take(seq, h.Payload) {
			r.settle(id, p, false)
			return
		}
		if cutOff {
			r.table.row(id).flags |= cut
		}
	}
	if !p.asks && r.decide(id, p, p.fin && p.next == p.finAt) {
		r.forget(id, p)
	} else if cutOff || len(r.pending) > maxPending {
		r.settle(id, p, false)
	}
}

// take adds a segment; false means that the client plays with more holes than are kept.
func (p *pending) take(seq uint32, data []byte) bool {
	if ahead := int32(seq - p.next); ahead > 0 {
		room := maxFirst - len(p.first) - int(ahead)
		if room <= 0 {
			return true // what decides ends before it
		}
		data = data[:min(len(data), room)]
		if p.waiting += len(data); len(p.early) == maxEarly || p.waiting > maxEarlyBytes {
			return false
		}
		p.early = append(p.early, segment{seq, bytes.Clone(data)})
		return true
	}
	p.add(seq, data)
	for again := true; again; {
		again = false
		p.early = slices.DeleteFunc(p.early, func(s segment) bool {
			if int32(s.seq-p.next) > 0 {
				return false
			}
			p.add(s.seq, s.data)
			p.waiting -= len(s.data)
			again = true
			return true
		})
	}
	return true
}

// add appends what is new of a segment that does not begin behind next.
func (p *pending) add(seq uint32, data []byte) {
	old := int(p.next - seq)
	if old >= len(data) {
		return
	}
	data = data[old:]
	data = data[:min(len(data), maxFirst-len(p.first))]
	p.first = append(p.first, data...)
	p.next += uint32(len(data))
}

// decide asks the judges that wait; it reports whether none is left.
func (r *reviewer) decide(id uint32, p *pending, end bool) bool {
	if len(p.first) == 0 && !end {
		return false
	}
	end = end || len(p.first) >= maxFirst
	left := false
	for place, j := range r.judges {
		if !p.head[place] && !p.open[place] {
			continue
		}
		f := p.flows[place]
		if p.head[place] {
			ok, more := j.Head(&f, p.first)
			p.head[place] = more && !end
			left = left || p.head[place]
			if ok {
				r.table.name(r.table.row(id), &f)
				r.request(id, place, j, &f, p.first)
			}
		}
		if !p.open[place] {
			continue
		}
		v, more := j.First(&f, p.first, end)
		if more {
			left = true
			continue
		}
		p.open[place] = false
		p.flows[place] = f
		r.decided(id, place, &f, v)
		if v.Action == egress.Inspect && f.App == egress.AppHTTP {
			r.request(id, place, j, &f, p.first)
		}
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
}

// newPending returns a pending whose next byte has the sequence number next.
func (r *reviewer) newPending(next uint32) *pending {
	n := len(r.unused)
	if n == 0 {
		return &pending{next: next}
	}
	p := r.unused[n-1]
	r.unused = r.unused[:n-1]
	*p = pending{next: next, first: p.first[:0]}
	return p
}

// forget ends the wait. Its memory serves another connection, unless it is much.
func (r *reviewer) forget(id uint32, p *pending) {
	delete(r.pending, id)
	if len(r.unused) < maxUnused && cap(p.first) <= maxFirst && cap(p.early) == 0 {
		r.unused = append(r.unused, p)
	}
}
