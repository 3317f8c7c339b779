package review

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
)

// maxRequests bounds the requests that a report lists. Those beyond it are judged and counted.
const maxRequests = 250_000

// Requests are known from two sources: those of plain HTTP connections from their bytes, and all of them,
// those inside TLS too, from the comments of a gateway that looked into the connection. One that is known
// from both is one request: the comment gives what was decided then.

// requestRows gathers them.
type requestRows struct {
	list []Request
	// pending are those that are known from their bytes and not yet from a comment, by their flows; numPending
	// is how many.
	pending    map[uint32][]pendingRequest
	numPending int
	// pinned are the names of the flows, under each policy.
	pinned map[uint32]*[maxJudges][]hostname.Name

	judges *judges
	report *Report
}

// pendingRequest is a request whose recorded verdict may still come, in a comment.
type pendingRequest struct {
	at      int // in the list, or unlisted
	request *Request
	learned *audit.Event // what is learned of it, unless there is a comment
}

// unlisted is the place of a request that is not in the list.
const unlisted = -1

// add adds a request and returns its place.
func (r *requestRows) add(q *Request) int {
	if len(r.list) >= maxRequests {
		r.beyond(q)
		return unlisted
	}
	r.list = append(r.list, *q)
	return len(r.list) - 1
}

// await keeps a request for its comment.
func (r *requestRows) await(id uint32, p pendingRequest) {
	switch {
	case r.numPending < maxRequests:
		r.numPending++
		r.pending[id] = append(r.pending[id], p)
	default:
		r.teach(p)
	}
}

// maxCompared bounds how many requests a comment is compared with.
const maxCompared = 64

// match takes out the pending request that a comment is about. Comments come in the order of the requests: the
// requests before it have none.
func (r *requestRows) match(id uint32, q *Request) (p pendingRequest, found bool) {
	all := r.pending[id]
	i := slices.IndexFunc(all[:min(len(all), maxCompared)], func(p pendingRequest) bool { return q.same(p.request) })
	if i < 0 {
		return pendingRequest{}, false
	}
	for _, p := range all[:i] {
		r.teach(p)
	}
	p, all = all[i], all[i+1:]
	r.numPending -= i + 1
	r.pending[id] = all
	if len(all) == 0 {
		delete(r.pending, id)
	}
	return p, true
}

func (q *Request) judged(place int, f *egress.Flow, v egress.Verdict) {
	out := flowVerdict(f, v)
	if place == byAgainst {
		q.Against = &out
	} else {
		q.Verdict = out
	}
}

// requested takes a request out of a comment.
func (r *reviewer) requested(id uint32, v *capture.Verdict) {
	if r.table.row(id).key.proto != capture.TransportTCP {
		return
	}
	recorded := recordedVerdict(v)
	q := Request{Flow: int(id) + 1, Scheme: v.Scheme, Host: v.Name, Method: v.Method, Path: v.Path, Overrides: v.Overrides, Recorded: &recorded}
	r.table.row(id).flags |= commented
	if p, ok := r.requests.match(id, &q); ok && p.at != unlisted {
		old := &r.requests.list[p.at]
		old.Recorded = &recorded
		for place := range r.judges {
			if place == byLearner { // the comment says more
				r.judgeOne(id, place, old, v)
			}
		}
		if isFixed(v) { // it was not for the policy to say
			old.keepRecorded()
		}
		return
	}
	for place := range r.judges {
		r.judgeOne(id, place, &q, v)
	}
	if isFixed(v) {
		q.keepRecorded()
	}
	r.requests.add(&q)
}

// judgeOne asks one judge, if it is there, about a request out of a comment.
func (r *reviewer) judgeOne(id uint32, place int, q *Request, v *capture.Verdict) {
	j := r.judges[place]
	if j == nil {
		return
	}
	f, verdict := r.judgeRequest(id, place, q, v)
	if place != byLearner {
		q.judged(place, &f, verdict)
		return
	}
	e := requestEvent(q, &f, verdict)
	if isFixed(v) {
		e.Action, e.Rule, e.Reason, e.WouldDeny = q.Recorded.Action, q.Recorded.Rule, q.Recorded.Reason, false
	}
	j.learned.Emit(e)
}

// same reports whether a request out of a comment is the one that was read. A host that is not the connection's
// is in no comment, nor is a path that is too long for one; of a method that a header asked for, the comment may
// name that.
func (q *Request) same(other *Request) bool {
	method := q.Method == other.Method || slices.Contains(strings.Split(other.Overrides, ","), q.Method)
	return method && (q.Host == other.Host || q.Host == "") && (q.Path == other.Path || q.Path == "")
}

// keepRecorded makes the recorded verdict that of every policy.
func (q *Request) keepRecorded() {
	v := *q.Recorded
	q.Verdict = v
	if q.Against != nil {
		q.Against = &v
	}
}

// isFixed reports whether a recorded denial was none of a policy's rules: the request could not be read
// without guessing, or held a placeholder where it may not be. It would be refused under another policy too.
func isFixed(v *capture.Verdict) bool {
	if v.Action != egress.Deny.String() {
		return false
	}
	reason, known := egress.ReasonOf(v.Reason)
	return !known || reason == egress.ReasonHostMismatch || reason == egress.ReasonUnreadable ||
		reason == egress.ReasonInvalid || reason == egress.ReasonLimit
}

// judgeRequest asks one judge about a request out of a comment.
func (r *reviewer) judgeRequest(id uint32, place int, q *Request, recorded *capture.Verdict) (egress.Flow, egress.Verdict) {
	j := r.judges[place]
	row := r.table.row(id)
	src, dst := r.table.ends(row.key)
	known := session.Known{App: egress.AppHTTP}
	if q.Scheme == "https" {
		known.App = egress.AppTLS
	}
	if target, err := netip.ParseAddrPort(recorded.To); err == nil && row.flags&proxied != 0 {
		known.Proxied, dst = true, target
	}
	known.Pinned = r.requests.hold(id, dst.Addr())[place]
	known.Host, _ = hostname.Parse(q.Host) // a literal address is none
	s, step := session.OpenKnown(j.rules, j.names, src, dst, known)
	f, v := s.Judged().Flow, s.Judged().Verdict
	if step.Action != session.Inspect {
		return f, v
	}
	f.Stage, f.Path = egress.StageRequest, q.Path
	if f.Path == "" {
		f.Path = "/"
	}
	f.Method = q.Method
	v = s.Decide(&f)
	for method := range strings.FieldsFuncSeq(q.Overrides, func(r rune) bool { return r == ',' }) { // every one of them must be allowed
		if v.Action == egress.Deny {
			break
		}
		f.Method = method
		v = s.Decide(&f)
	}
	if q.Path == "" {
		v = egress.Verdict{Action: egress.Peek}
	}
	return f, v
}

// hold keeps the names of a flow to dst that was looked into: its requests may come long after the pins' end.
func (r *requestRows) hold(id uint32, dst netip.Addr) *[maxJudges][]hostname.Name {
	held := r.pinned[id]
	if held == nil {
		held = new([maxJudges][]hostname.Name)
		r.pinned[id] = held
	}
	for place, j := range r.judges {
		if j != nil && len(held[place]) == 0 {
			held[place] = j.names.Pinned(dst)
		}
	}
	return held
}

// requestEvent is what the gateway's audit log would hold of a request.
func requestEvent(q *Request, f *egress.Flow, v egress.Verdict) audit.Event {
	e := eventOf(f, v)
	e.Kind, e.Scheme, e.Host, e.Method, e.Path = audit.HTTPRequest, q.Scheme, q.Host, q.Method, q.Path
	e.Overrides = q.Overrides
	return e
}

// teach gives the collector a request that no comment is about.
func (r *requestRows) teach(p pendingRequest) {
	if p.learned != nil {
		r.judges[byLearner].learned.Emit(*p.learned)
	}
}

// teachAll is teach for all that are left.
func (r *requestRows) teachAll() {
	for _, id := range slices.Sorted(maps.Keys(r.pending)) {
		for _, p := range r.pending[id] {
			r.teach(p)
		}
	}
}

// beyond counts a request that is not listed.
func (r *requestRows) beyond(q *Request) {
	r.report.MoreRequests++
	for _, c := range conditions() {
		if c != Unreadable && holds(c, &q.Verdict, q.Against, q.Recorded) {
			r.report.beyond[c]++
		}
	}
}

// rows are all requests, in the order of their flows. One that a policy doesn't look at is judged as its
// connection is.
func (r *reviewer) requestRows() []Request {
	list := slices.DeleteFunc(r.requests.list, func(q Request) bool { // a comment reports these
		return q.Unfollowed && r.table.row(uint32(q.Flow-1)).flags&commented != 0
	})
	for i := range list {
		q := &list[i]
		row := r.table.row(uint32(q.Flow - 1))
		if q.Verdict.Action == "" {
			q.Verdict = r.table.connection(row.verdict)
		}
		if r.report.compared && q.Against == nil {
			v := r.table.connection(row.against)
			q.Against = &v
		}
	}
	slices.SortStableFunc(list, func(a, b Request) int { return cmp.Compare(a.Flow, b.Flow) })
	return list
}

// connection is the verdict on a connection as one on its requests.
func (t *table) connection(n uint32) Verdict {
	v := t.ruling(n)
	switch {
	case v == nil:
		return Verdict{Action: Undecided}
	case v.Action == egress.Inspect.String(): // it would be looked into; what came of it isn't known
		return Verdict{Action: Undecided, Rule: v.Rule, Reason: v.Reason}
	}
	return *v
}
