package audit

import (
	"fmt"
	"sync"
	"time"
)

// A guest makes denials as fast as it sends (30,000 a second were seen) and would push everything else
// out of the files that are kept. Of denials that differ in nothing but their destination, name or request:
const (
	floodRate  = 100         // lines a second are written one by one
	floodBurst = 1000        // lines at once, after a quiet time
	floodEvery = time.Second // the others are merged into one line in this time
	floodKeys  = 1024        // sorts of denials told apart; rules and reasons make some dozens
	floodLine  = time.Second / floodRate
	floodIdle  = floodLine * floodBurst // after this a sort has its burst again and can be forgotten
)

// deny is the action of denials, as package egress spells it.
const deny = "deny"

// floodKey is what denials must have in common to share a line. None of it is the guest's choice.
type floodKey struct {
	kind                        Kind
	proto, action, reason, rule string
	// what is the message of a limit or a dropped frame: which bound, which reason.
	what string
}

// Flood is a Sink that merges denials: of flows, names and requests, at limits, and of frames. What was let
// through, and everything else, always gets its own line. The counts of its lines, at least 1 each, add up to
// the denials that it was given, once it is closed.
type Flood struct {
	out    func(Event)
	merged func(Event)

	mu      sync.Mutex
	sorts   map[floodKey]*denials
	pending []*denials  // those with a count, in the order of their first
	timer   *time.Timer // runs while there are pending ones
	closed  bool
}

var _ Sink = (*Flood)(nil)

// denials is one sort of them. Its line times are a token bucket: the next line is owed at due, and as
// many may come early as fit into floodIdle.
type denials struct {
	key   floodKey
	due   time.Time
	count uint64 // verdicts that wait for the merged line
}

// NewFlood returns a Flood that writes its lines with out. merged, if it isn't nil, is shown each denial that
// gets no line of its own. Close ends it.
func NewFlood(out, merged func(Event)) *Flood {
	return &Flood{out: out, merged: merged, sorts: make(map[floodKey]*denials)}
}

// Emit implements Sink.
func (f *Flood) Emit(e Event) {
	key, ok := mergeable(&e)
	switch {
	case !ok || !f.merge(key, max(1, e.Count), time.Now()):
		f.out(e)
	case f.merged != nil:
		f.merged(e)
	}
}

// mergeable reports whether a line is one of those that a guest, or a client of a published port, makes as fast as it sends, and its sort. A
// rebinding or a secret's violation is never merged: it is the rare one that is looked for.
func mergeable(e *Event) (k floodKey, ok bool) {
	if e.Action != deny {
		return k, false
	}
	k = floodKey{kind: e.Kind, proto: e.Proto, action: e.Action, reason: e.Reason, rule: e.Rule}
	switch e.Kind { //nolint:exhaustive // nobody makes the others as fast as they like
	case FlowOpen, DNSQuery, HTTPRequest, PortFlow:
		return k, true
	case Limit, LinkDrop:
		k.what = e.Message
		return k, true
	}
	return k, false
}

// merge reports whether n denials are counted for a merged line and need none of their own.
func (f *Flood) merge(k floodKey, n uint64, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false // no merged line would be written any more
	}
	d := f.sort(k, now)
	if d.takeLine(now) {
		return false
	}
	if d.count == 0 {
		f.pending = append(f.pending, d)
	}
	d.count += n
	if f.timer == nil {
		f.timer = time.AfterFunc(floodEvery, f.flush)
	}
	return true
}

// sort finds the denials of a key. Beyond floodKeys, all sorts of a kind are one.
func (f *Flood) sort(k floodKey, now time.Time) *denials {
	if d := f.sorts[k]; d != nil {
		return d
	}
	if len(f.sorts) >= floodKeys {
		for key, d := range f.sorts {
			if d.count == 0 && !d.due.After(now) {
				delete(f.sorts, key)
			}
		}
	}
	if len(f.sorts) >= floodKeys {
		k = floodKey{kind: k.kind, action: k.action}
		if d := f.sorts[k]; d != nil {
			return d
		}
	}
	d := &denials{key: k, due: now}
	f.sorts[k] = d
	return d
}

func (d *denials) takeLine(now time.Time) bool {
	if d.due.Before(now) {
		d.due = now
	}
	next := d.due.Add(d.key.line())
	if next.Sub(now) > floodIdle {
		return false
	}
	d.due = next
	return true
}

// line is the time between two lines of a sort. Each dropped frame of a reason is like the other: the first has
// a line at once, later ones share theirs.
func (k floodKey) line() time.Duration {
	if k.kind == LinkDrop {
		return floodIdle
	}
	return floodLine
}

// flush writes the merged lines.
func (f *Flood) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.pending {
		e := Event{
			Kind: d.key.kind, Proto: d.key.proto, Action: d.key.action, Reason: d.key.reason, Rule: d.key.rule,
			Count: d.count, Message: d.key.what,
		}
		if e.Message == "" {
			e.Message = fmt.Sprintf("%d more denials of this sort, merged: they came faster than %d a second", d.count, floodRate)
		}
		f.out(e)
		d.count = 0
	}
	f.pending, f.timer = f.pending[:0], nil
}

// Close writes what is still counted. Later denials get lines of their own.
func (f *Flood) Close() {
	f.mu.Lock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.flush()
}
