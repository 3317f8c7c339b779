package review

import (
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/secretproxy"
)

const (
	// maxFollowed bounds the connections whose requests are followed at a time, maxFollowBytes the buffers
	// of all of them: incomplete heads, and segments that came early. Connections beyond are reported as
	// undecided.
	maxFollowed    = 16384
	maxFollowBytes = 64 << 20
	// followWindow is how far ahead of what was read a segment may be.
	followWindow = 1 << 20
	// maxPath bounds the path that is kept of a request, as in a gateway's comments, maxWord its method and
	// those that its headers ask for, which are judged whole, and the rule and the reason of a comment.
	maxPath = 2 << 10
	maxWord = 256
)

// follower reads the requests of a plain HTTP connection, the first and all later ones.
type follower struct {
	stream
	replay   secretproxy.Replay
	sessions [maxJudges]*session.Session
	judged   [maxJudges]bool // by whom each request is judged
	size     int             // of the buffers, at the last count
}

// follows are the connections whose requests are read.
type follows struct {
	live  map[uint32]*follower
	bytes int // that are held of them

	judges   *judges
	table    *table
	requests *requestRows
	compared bool
}

// begin reads what a client said first, then waits for what it says next.
func (r *follows) begin(id uint32, p *pending) {
	f := &follower{stream: p.stream, sessions: p.sessions, judged: p.web}
	row := r.table.row(id)
	r.feed(id, f, p.first)
	switch {
	case f.replay.Over():
	case len(r.live) >= maxFollowed:
		row.flags |= untracked
	default:
		row.flags |= followed
		r.live[id] = f
		r.count(f)
		r.ends(id, f)
	}
}

// next takes a later segment of a client whose requests are followed.
func (r *follows) next(id uint32, h *capture.Headers, cutOff bool) {
	f := r.live[id]
	if f == nil {
		if len(h.Payload) > 0 {
			r.table.row(id).flags &^= untracked
			r.lostTrack(id)
		}
		return
	}
	ok := f.take(h, followWindow, func(b []byte) int {
		r.feed(id, f, b)
		return len(b)
	})
	if f.broken {
		r.end(id)
		return
	}
	if f.replay.Over() {
		r.leave(id, f)
		return
	}
	r.count(f)
	if !ok || cutOff || r.bytes > maxFollowBytes {
		r.lostTrack(id)
		r.leave(id, f)
		return
	}
	r.ends(id, f)
}

// ends stops following a client that has left.
func (r *follows) ends(id uint32, f *follower) {
	if f.closed {
		r.lastHead(id, f)
		r.leave(id, f)
	}
}

// end ends it because the connection ended, or the capture.
func (r *follows) end(id uint32) {
	if f := r.live[id]; f != nil {
		if len(f.early) > 0 && !f.broken { // what is before them never came
			r.lostTrack(id)
		}
		r.lastHead(id, f)
		r.leave(id, f)
	}
}

// lastHead lists a request whose head never ended and that the gateway refused all the same.
func (r *follows) lastHead(id uint32, f *follower) {
	if f.replay.Refused(f.closed) {
		r.refused(id, f)
	}
}

func (r *follows) leave(id uint32, f *follower) {
	r.table.row(id).flags &^= followed
	r.bytes -= f.size
	delete(r.live, id)
}

// count updates the size of all buffers.
func (r *follows) count(f *follower) {
	size := f.waiting + f.replay.Size()
	r.bytes += size - f.size
	f.size = size
}

// feed takes the next bytes of a client.
func (r *follows) feed(id uint32, f *follower, b []byte) {
	if f.replay.Feed(b, func(head []byte) (more bool) { return r.request(id, f, head) }) != nil {
		r.refused(id, f)
	}
}

// refused lists a request that a gateway refuses unread.
func (r *follows) refused(id uint32, f *follower) {
	q := Request{Flow: int(id) + 1, Scheme: "http"}
	r.listed(id, f, &q, func(int, *egress.Flow) secretproxy.Replayed {
		return secretproxy.Replayed{Fault: egress.ReasonUnreadable.String()}
	})
}

// request judges a request by its head. It reports whether others may follow.
func (r *follows) request(id uint32, f *follower, head []byte) (more bool) {
	q := Request{Flow: int(id) + 1, Scheme: "http"}
	r.listed(id, f, &q, func(place int, flow *egress.Flow) secretproxy.Replayed {
		said := secretproxy.ReplayHead(f.sessions[place], *flow, head)
		q.Method, q.Path, q.Overrides = brief(said.Method), strings.Clone(said.Path), brief(said.Overrides)
		if len(q.Path) > maxPath {
			q.Path = ""
		}
		if !said.Host.IsZero() {
			q.Host = said.Host.String()
		}
		more = !said.Last
		return said
	})
	return more
}

// listed adds a request that each judge is asked about.
func (r *follows) listed(id uint32, f *follower, q *Request, ask func(place int, flow *egress.Flow) secretproxy.Replayed) {
	var learned *audit.Event
	for place, j := range r.judges {
		if j == nil || !f.judged[place] {
			continue
		}
		flow := f.sessions[place].Judged().Flow
		said := ask(place, &flow)
		flow.Name = said.Host
		if place == byLearner {
			learned = learnedRequest(q, &flow, &said)
			continue
		}
		v := flowVerdict(&flow, said.Verdict)
		if said.Fault != "" {
			v = faulty(said.Fault)
		}
		if place == byAgainst {
			q.Against = &v
		} else {
			q.Verdict = v
		}
		if row := r.table.row(id); row.name == 0 {
			r.table.name(row, &flow)
		}
	}
	at := unlisted
	if f.judged[byPolicy] || f.judged[byAgainst] {
		at = r.requests.add(q)
	}
	r.requests.await(id, pendingRequest{at, q, learned})
}

// brief is a copy of the beginning of s.
func brief(s string) string { return strings.Clone(s[:min(maxWord, len(s))]) }

// faulty is the verdict on a request that is rejected as malformed.
func faulty(code string) Verdict {
	v := Verdict{Action: egress.Deny.String(), Reason: code}
	if reason, known := egress.ReasonOf(code); known {
		v.Sentence = reason.Sentence()
	}
	return v
}

// learnedRequest is a request as the collector gets it.
func learnedRequest(q *Request, f *egress.Flow, said *secretproxy.Replayed) *audit.Event {
	e := requestEvent(q, f, said.Verdict)
	if said.Fault != "" {
		e.Action, e.Rule, e.Reason, e.WouldDeny = egress.Deny.String(), "", said.Fault, false
	}
	return &e
}

// lostTrack says that the rest of a connection's requests is not known.
func (r *follows) lostTrack(id uint32) {
	q := Request{Flow: int(id) + 1, Scheme: "http", Unfollowed: true, Verdict: Verdict{Action: Undecided}}
	if r.compared {
		q.Against = &Verdict{Action: Undecided}
	}
	r.requests.add(&q)
}
