package review

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/msb-project/msb/egress"
)

// Verdict is what was decided about a flow, a name or a request. Strings are the audit log's.
type Verdict struct {
	// Action is "allow", "inspect" or "deny". "undecided" says that the capture doesn't hold what decides:
	// the client never said its name.
	Action string `json:"action"`
	// WouldDeny marks what report mode lets through.
	WouldDeny bool   `json:"would_deny,omitempty"`
	Rule      string `json:"rule,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Class is of the destination where it isn't public.
	Class string `json:"class,omitempty"`
	// Sentence says the reason to people.
	Sentence string `json:"sentence,omitempty"`
	// mapped says that a line of [hosts] leads from the destination: the operator chose where.
	mapped bool
}

// Undecided is the action of a verdict that the capture doesn't tell enough for.
const Undecided = "undecided"

// flowVerdict is verdictOf for a flow or one of its requests.
func flowVerdict(f *egress.Flow, v egress.Verdict) Verdict {
	out := verdictOf(v)
	out.mapped = f.Mapped
	return out
}

func verdictOf(v egress.Verdict) Verdict {
	out := Verdict{
		Action: v.Action.String(), WouldDeny: v.WouldDeny, Rule: v.Rule,
		Reason: v.Reason.String(), Sentence: v.Reason.Sentence(),
	}
	if v.Action == egress.Peek {
		out.Action = Undecided
	}
	if v.Class != egress.ClassPublic && v.Class != egress.ClassInvalid {
		out.Class = v.Class.String()
	}
	return out
}

// allowed reports whether the flow goes on.
// freedom orders verdicts by how much they let out: 0 for nothing, 1 for what is looked into.
func (v *Verdict) freedom() int {
	switch {
	case !v.allowed():
		return 0
	case v.Action == "inspect":
		return 1
	}
	return 2
}

func (v *Verdict) allowed() bool { return v.Action == "allow" || v.Action == "inspect" }

// Flow is one flow of a capture. Its verdicts are shared with other flows: read them only.
type Flow struct {
	// ID counts the flows in the order of their first packets, from 1.
	ID    int            `json:"id"`
	Proto string         `json:"proto"`
	Src   netip.AddrPort `json:"src"`
	Dst   netip.AddrPort `json:"dst"`
	// Names are pinned to Dst under the policy, at most 16 of them; Name is what the client said, in its ClientHello or
	// Host. Of an inbound flow, Name is the address of the client of a published port.
	Names []string `json:"names,omitempty"`
	Name  string   `json:"name,omitempty"`
	// ProxyTarget is the host and port that the client asked the gateway's proxy at Dst for,
	// "api.example.com:443". The verdicts and Names are about it.
	ProxyTarget string `json:"asked,omitempty"`
	// Start and End are the times of the first and the last packet.
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
	// BytesUp and BytesDown count payload, retransmissions included.
	BytesUp   int64 `json:"bytes_up"`
	BytesDown int64 `json:"bytes_down"`
	Packets   int64 `json:"packets"`
	// Inbound was opened by the host for a client of a published port, Partial has its beginning outside the capture; of a Cut one the
	// capture lacks the bytes that decide.
	Inbound bool `json:"inbound,omitempty"`
	Partial bool `json:"partial,omitempty"`
	Cut     bool `json:"cut,omitempty"`
	// Recorded is the verdict in the capture's comments; nil for none.
	Recorded *Verdict `json:"recorded,omitempty"`
	// Verdict is the policy's; nil for what is not judged: inbound flows without a
	// comment that names the client, lookups (see Report.Lookups),
	// and announcements to the local network.
	Verdict *Verdict `json:"verdict,omitempty"`
	// Against is the other policy's.
	Against *Verdict `json:"against,omitempty"`
	// Lookup marks a flow to the resolver.
	Lookup bool `json:"lookup,omitempty"`
}

// HasRecorded reports whether the captures hold any verdict: msb's own do, other tools' don't.
func (r *Report) HasRecorded() bool {
	for f := range r.Flows() {
		if f.Recorded != nil {
			return true
		}
	}
	return slices.ContainsFunc(r.Lookups, func(l Lookup) bool { return l.Recorded != nil }) ||
		slices.ContainsFunc(r.Requests, func(q Request) bool { return q.Recorded != nil })
}

// Changed reports whether the policy decides otherwise than the other policy, or than was recorded if
// there is no other. What can't be compared is not changed.
func (f *Flow) Changed() bool { return changed(f.Verdict, f.Against, f.Recorded) }

func changed(v, against, recorded *Verdict) bool {
	other := against
	if other == nil {
		other = recorded
	}
	return v != nil && other != nil && v.Action != other.Action && v.Action != Undecided && other.Action != Undecided
}

// Lookup is all questions for one name and type. Those that the gateway asks for a client of its proxy
// have no type.
type Lookup struct {
	Name  string `json:"name"`
	Type  string `json:"type,omitempty"`
	Count int64  `json:"count"`
	// Answers are addresses that the name may have under the policy, Removed those that it may not.
	Answers  []netip.Addr `json:"answers,omitempty"`
	Removed  []netip.Addr `json:"removed,omitempty"`
	Recorded *Verdict     `json:"recorded,omitempty"`
	Verdict  Verdict      `json:"verdict"`
	Against  *Verdict     `json:"against,omitempty"`
}

// Changed is Flow.Changed for names.
func (l *Lookup) Changed() bool { return changed(&l.Verdict, l.Against, l.Recorded) }

// Request is a request of a connection that is or was looked into: what the recording gateway said of each,
// and without that those of a plain HTTP connection.
type Request struct {
	// Flow is the flow's ID.
	Flow int `json:"flow"`
	// Scheme is "http" or "https". Host is empty for a literal address.
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	Method string `json:"method"`
	// Path has no query. It is empty if it is longer than 2 KiB; with a recorded one, the verdict is Undecided
	// then. Method and Path are empty if the request can't be read without guessing.
	Path string `json:"path"`
	// Unfollowed says that this is no request: the rest of the connection could not be followed, because the
	// capture lacks bytes or holds more than is kept.
	Unfollowed bool `json:"unfollowed,omitempty"`
	// Overrides are the methods that its headers ask for, separated by commas; they are judged too.
	Overrides string   `json:"overrides,omitempty"`
	Recorded  *Verdict `json:"recorded,omitempty"`
	Verdict   Verdict  `json:"verdict"`
	Against   *Verdict `json:"against,omitempty"`
}

// Changed is Flow.Changed for requests.
func (q *Request) Changed() bool { return changed(&q.Verdict, q.Against, q.Recorded) }

// Report is what a review found.
type Report struct {
	Packets int64
	// Bytes is how much of the captures was read.
	Bytes int64
	// Lost is how many packets the captures say they lack.
	Lost int64
	// Other counts frames that are of no flow: ARP, neighbour discovery, DHCP's broadcasts, damage.
	Other int64
	// Dropped counts the frames that the recording gateway's guard threw away, by reason.
	Dropped map[string]int64
	// Guarded counts those that the guard would throw away, of captures that don't say what it did.
	Guarded map[string]int64
	// Begin and End are the times of the first and the last packet.
	Begin, End time.Time

	Lookups []Lookup
	// Requests are in the order of their flows.
	Requests []Request
	// MoreRequests is how many there are beyond the bound on Requests, LostVerdicts how many verdicts the
	// recording gateway could not write down.
	MoreRequests int64
	LostVerdicts int64
	Damage       []Damage

	table    *table
	learned  []byte
	compared bool
	unread   int
	// beyond counts the conditions that hold for MoreRequests.
	beyond map[Condition]int
	// lateNames counts them for the names that are in no row of Lookups.
	lateNames map[Condition]int
}

func (r *Report) begin(ns int64) {
	t := time.Unix(0, ns).UTC()
	if r.Begin.IsZero() {
		r.Begin = t
	}
	r.End = t
}

// Len is how many flows there are.
func (r *Report) Len() int { return r.table.flows }

// Learned is the policy that would let through what was seen; nil unless it was asked for.
func (r *Report) Learned() []byte { return r.learned }

// Flows gives the flows in the order of their first packets.
func (r *Report) Flows() iter.Seq[Flow] {
	return func(yield func(Flow) bool) {
		for i := range r.table.flows {
			if !yield(r.table.flow(i)) {
				return
			}
		}
	}
}

// flow is a row as others see it.
func (t *table) flow(i int) Flow {
	row := t.row(uint32(i))
	src, dst := t.ends(row.key)
	f := Flow{
		ID: i + 1, Proto: row.key.proto.String(), Src: src, Dst: dst,
		Name: t.names.value(row.name), ProxyTarget: t.proxyTargets[uint32(i)],
		Start: time.Unix(0, row.start).UTC(), End: time.Unix(0, row.end).UTC(),
		BytesUp: row.up, BytesDown: row.down, Packets: int64(row.packets),
		Inbound: row.flags&inbound != 0, Partial: row.flags&partial != 0, Cut: row.flags&cut != 0,
		Lookup:   row.flags&lookup != 0,
		Recorded: t.ruling(row.recorded), Verdict: t.ruling(row.verdict), Against: t.ruling(row.against),
	}
	if row.names != 0 {
		f.Names = strings.Split(t.names.value(row.names), " ")
	}
	return f
}

func (t *table) ruling(n uint32) *Verdict {
	if n == 0 {
		return nil
	}
	return &t.said.values[n]
}
