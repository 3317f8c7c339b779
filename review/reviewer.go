package review

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/learn"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/policies"
)

// reviewer is a review under way.
type reviewer struct {
	options Options
	judges  judges
	report  *Report
	table   table
	names   nameRows
	// later are the SYNs on connections that may be over.
	later    laterSYNs
	verdicts verdicts
	first    firstBytes
	follows  follows
	streams  map[uint32]*dnsStreams
	recent   [recentFlows]recentFlow
	guard    frameGuard
	// requests are those of inspected connections.
	requests requestRows
	start    int64
	lenient  bool // it has no direction
}

func newReviewer(o Options) (*reviewer, error) {
	if o.Policy == nil {
		return nil, errors.New("a review needs a policy")
	}
	r := &reviewer{
		options: o,
		report:  &Report{Dropped: map[string]int64{}, beyond: map[Condition]int{}, compared: o.Against != nil},
		later:   laterSYNs{kept: make(map[uint32]laterSYN), stray: make(map[uint32][]strayReset)},
		streams: make(map[uint32]*dnsStreams),
		guard:   frameGuard{offline: frameguard.NewOffline(gateway()...)},

		requests: requestRows{pending: make(map[uint32][]pendingRequest), pinned: make(map[uint32]*[maxJudges][]hostname.Name)},
	}
	r.requests.judges, r.requests.report = &r.judges, r.report
	r.follows = follows{live: make(map[uint32]*follower), judges: &r.judges, table: &r.table, requests: &r.requests, compared: r.report.compared}
	r.verdicts = verdicts{&r.judges, &r.table}
	r.first = firstBytes{live: make(map[uint32]*pending), verdicts: &r.verdicts, follows: &r.follows, names: &r.names}
	r.table.init()
	r.names.init()
	if o.Learn {
		r.judges[byLearner] = &judge{learned: learn.New()}
	}
	return r, r.newJudges()
}

// reset begins another recording. Nothing but the report remains of the ones before.
func (r *reviewer) reset() error {
	r.settleAll()
	clear(r.table.live)
	clear(r.streams)
	r.recent = [recentFlows]recentFlow{}
	r.guard = frameGuard{offline: frameguard.NewOffline(gateway()...)}
	r.start = 0
	return r.newJudges()
}

// settleAll judges the connections that are still undecided.
func (r *reviewer) settleAll() {
	for id, p := range r.first.live {
		r.first.end(id, p)
	}
	for id := range r.follows.live {
		r.follows.end(id)
	}
	for id := range r.later.kept {
		r.notAgain(id)
	}
}

// read takes one capture. Only ctx's end ends the review.
func (r *reviewer) read(ctx context.Context, name string, src io.Reader) error {
	reader, err := capture.NewReader(src)
	if errors.Is(err, io.EOF) {
		err = ErrEmpty // a pipe: of a file it is known before
	}
	if err != nil {
		r.report.unreadable(name, err)
		return nil
	}
	r.guard.annotated = false
	for n := 0; ; n++ {
		if n%checkContext == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		rec, err := reader.Next()
		if err != nil {
			r.report.Bytes += reader.Offset()
			r.report.Lost += int64(reader.Lost())
			r.report.LostVerdicts += int64(reader.LostVerdicts())
			if foreign := reader.Foreign(); foreign != nil {
				r.report.unreadable(name, foreign)
			}
			if !errors.Is(err, io.EOF) {
				r.report.unreadable(name, err)
			}
			return nil
		}
		r.record(rec)
	}
}

func (r *reviewer) record(rec *capture.Record) {
	switch rec.Kind {
	case capture.PacketRecord:
		r.packet(rec)
	case capture.NameRecord:
		r.judges.given(rec)
	case capture.KeysRecord:
	}
}

func (r *reviewer) packet(rec *capture.Record) {
	r.report.Packets++
	if r.start == 0 {
		r.start = rec.Time
	}
	r.report.begin(rec.Time)
	r.first.now, r.lenient = rec.Time, rec.Direction == capture.UnknownDirection
	for _, j := range r.judges {
		if j != nil {
			j.names.At(time.Duration(rec.Time - r.start))
		}
	}
	if reason, dropped := r.guard.readComments(rec.Comments); dropped {
		r.report.dropped(reason)
		return // it went nowhere
	}
	h, ok := capture.Decode(rec.Frame)
	if reason := r.guard.dropReason(rec, &h, ok); reason != "" {
		r.report.throwAway(reason)
		return
	}
	if !ok {
		r.report.Other++
		return
	}
	id, up, found := r.flow(rec, &h)
	if !found {
		return
	}
	again := up && r.mayOpenAgain(id, &h)
	r.carry(id, up, rec, &h)
	if again {
		r.notAgain(id)
		if r.later.keep(id, rec, &h) {
			return
		}
	}
	for _, c := range rec.Comments {
		r.recorded(id, c)
	}
}

// recorded takes a verdict out of a comment.
func (r *reviewer) recorded(id uint32, comment string) {
	v, ok := capture.ParseVerdict(comment)
	switch {
	case !ok:
		r.report.LostVerdicts += int64(capture.ParseLostVerdicts(comment))
	case v.Kind == capture.KindRequest:
		r.requested(id, &v)
	case v.Kind == capture.KindName:
		r.names.recorded(v)
		if r.table.row(id).flags&proxied != 0 {
			r.keepRecorded(id, &v)
			if p := r.first.live[id]; p != nil {
				p.refused = &v
			}
		}
	case v.Kind == capture.KindPort:
		r.admitted(id, &v)
	default:
		r.keepRecorded(id, &v)
	}
}

// admitted judges the client of a published port, whom only the gateway's comment names: its packets have the gateway's
// address. That it was the recording machine itself is the comment's word too.
func (r *reviewer) admitted(id uint32, v *capture.Verdict) {
	row := r.table.row(id)
	if row.flags&inbound == 0 {
		return
	}
	client, err := netip.ParseAddrPort(v.Client)
	name := client.Addr().String()
	ours := client.Addr().IsLoopback() || v.Reason == egress.ReasonThisMachine.String()
	judge := func(p *policies.Policy) egress.Verdict { return egress.Admit(p, client.Addr(), ours) }
	if v.Reason == egress.ReasonPodOpen.String() {
		judge = func(p *policies.Policy) egress.Verdict { return egress.AdmitPod(p, client.Addr(), ours) }
	}
	if peer, ok := strings.CutPrefix(v.Client, capture.PeerPrefix); ok {
		_, guest := r.table.ends(row.key)
		name, judge = v.Client, func(p *policies.Policy) egress.Verdict { return egress.AdmitSandbox(p, peer, guest.Port()) }
	} else if err != nil {
		return
	}
	r.keepRecorded(id, v)
	row.name = r.table.names.number(name)
	for place, j := range r.judges {
		if j != nil && place != byLearner {
			r.verdicts.decided(id, place, &egress.Flow{}, judge(j.policy))
		}
	}
}

// maxRulings bounds the different verdicts of flows; of comments beyond it the action is kept.
const maxRulings = 100_000

// keepRecorded keeps the last verdict that was recorded for a flow.
func (r *reviewer) keepRecorded(id uint32, v *capture.Verdict) {
	row := r.table.row(id)
	recorded := recordedVerdict(v)
	if len(r.table.said.values) >= maxRulings {
		recorded.Rule, recorded.Reason = "", ""
	}
	row.recorded = r.table.verdict(recorded)
	if v.Action == egress.Inspect.String() { // there will be requests
		dst := r.table.addrs.value(row.key.dst)
		if to, err := netip.ParseAddrPort(v.To); err == nil && row.flags&proxied != 0 {
			dst = to.Addr()
		}
		r.requests.hold(id, dst)
	}
}

// finish judges the connections that are still undecided and returns the report.
func (r *reviewer) finish() *Report {
	r.settleAll()
	r.report.table = &r.table
	r.report.Lookups = r.names.rows()
	r.report.lateNames = r.names.beyond
	r.report.Requests = r.requestRows()
	if j := r.judges[byLearner]; j != nil {
		r.requests.teachAll()
		r.report.learned = j.learned.Policy(r.options.Policy)
	}
	return r.report
}
