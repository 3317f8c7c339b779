package gateway

import (
	"fmt"
	"sync"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
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

// floodKey is what denials must have in common to share a line. None of it is the guest's choice.
type floodKey struct {
	kind                        audit.Kind
	proto, action, reason, rule string
}

// flood is a sink that merges denials of flows, names and requests. Whatever else happens, and what was
// let through, always gets its own line.
type flood struct {
	out func(audit.Event)
	// merged, if not nil, is shown each denial that gets no line of its own.
	merged func(audit.Event)

	mu      sync.Mutex
	sorts   map[floodKey]*denials
	pending []*denials  // those with a count, in the order of their first
	timer   *time.Timer // runs while there are pending ones
	closed  bool
}

var _ audit.Sink = (*flood)(nil)

// denials is one sort of them. Its line times are a token bucket: the next line is owed at due, and as
// many may come early as fit into floodIdle.
type denials struct {
	key   floodKey
	due   time.Time
	count uint64 // verdicts that wait for the merged line
}

func newFlood(out func(audit.Event)) *flood {
	return &flood{out: out, sorts: make(map[floodKey]*denials)}
}

// Emit implements audit.Sink.
func (f *flood) Emit(e audit.Event) {
	switch {
	case !mergeable(&e) || !f.merge(&e, time.Now()):
		f.out(e)
	case f.merged != nil:
		f.merged(e)
	}
}

// mergeable reports whether a line is one of those that a guest makes as fast as it sends. A rebinding or
// a secret's violation is never merged: it is the rare one that is looked for.
func mergeable(e *audit.Event) bool {
	decision := e.Kind == audit.FlowOpen || e.Kind == audit.DNSQuery || e.Kind == audit.HTTPRequest
	return decision && e.Action == egress.Deny.String() && !e.WouldDeny
}

// merge reports whether e is counted for a merged line and needs none of its own.
func (f *flood) merge(e *audit.Event, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false // nobody would tell of it any more
	}
	d := f.sort(floodKey{kind: e.Kind, proto: e.Proto, action: e.Action, reason: e.Reason, rule: e.Rule}, now)
	if d.takeLine(now) {
		return false
	}
	if d.count == 0 {
		f.pending = append(f.pending, d)
	}
	d.count += max(1, e.Count)
	if f.timer == nil {
		f.timer = time.AfterFunc(floodEvery, f.tell)
	}
	return true
}

// sort finds the denials of a key. Beyond floodKeys, all sorts of a kind are one.
func (f *flood) sort(k floodKey, now time.Time) *denials {
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
	next := d.due.Add(floodLine)
	if next.Sub(now) > floodIdle {
		return false
	}
	d.due = next
	return true
}

// tell writes the merged lines.
func (f *flood) tell() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.pending {
		f.out(audit.Event{
			Kind: d.key.kind, Proto: d.key.proto, Action: d.key.action, Reason: d.key.reason, Rule: d.key.rule,
			Count:   d.count,
			Message: fmt.Sprintf("%d more denials of this sort, merged: they came faster than %d a second", d.count, floodRate),
		})
		d.count = 0
	}
	f.pending, f.timer = f.pending[:0], nil
}

// close writes what is still to be told of. Later denials get lines of their own.
func (f *flood) close() {
	f.mu.Lock()
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.tell()
}
