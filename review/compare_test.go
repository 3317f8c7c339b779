package review_test

import (
	"iter"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/review"
)

// ends are what an audit event and a reviewed flow both know.
type ends struct {
	proto   string
	srcPort uint16
	dst     netip.AddrPort
}

// opened are the verdicts that a gateway gave so far, in order. Of what its proxy was asked for, the last one counts.
func opened(log *gatewaytest.Recorder) map[ends][]audit.Event {
	verdicts := map[ends][]audit.Event{}
	for _, e := range log.Events(audit.FlowOpen) {
		at := netip.AddrPortFrom(e.Dst, e.Port)
		if e.Proxy.IsValid() {
			at = e.Proxy
		}
		key := ends{e.Proto, e.SrcPort, at}
		if e.Proxy.IsValid() {
			verdicts[key] = nil
		}
		verdicts[key] = append(verdicts[key], e)
	}
	return verdicts
}

// verdictsOf counts the flows that a gateway has judged. Pings of an address are one to a review.
func verdictsOf(log *gatewaytest.Recorder) (n int) {
	for flow, events := range opened(log) {
		if flow.proto == "icmp" {
			events = events[:1]
		}
		n += len(events)
	}
	return n
}

// compareGuarded holds what the review says that the frame guard would throw away against what it threw away.
func (w *wire) compareGuarded(r *review.Report) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for reason, n := range r.Guarded {
		if w.guarded[reason] < n {
			w.t.Errorf("the review would throw %d frames away for %s, the gateway threw %d", n, reason, w.guarded[reason])
		}
	}
}

// compare holds the review's verdicts against those of the gateway that the same flows went through:
// where the gateway gave one, they must be the same. A flow without one was dropped by the frame guard,
// or ended before its name was read.
func compare(t *testing.T, log *gatewaytest.Recorder, flows iter.Seq[review.Flow]) (compared int64) {
	t.Helper()
	return compareBut(t, log, flows, func(*review.Flow, *audit.Event) bool { return false })
}

// compareBut is compare with verdicts of the gateway that may be others than the review's.
func compareBut(t *testing.T, log *gatewaytest.Recorder, flows iter.Seq[review.Flow], open func(*review.Flow, *audit.Event) bool) (compared int64) {
	t.Helper()
	live, at := opened(log), map[ends]int{}
	judged := map[ends]int{}
	all := slices.Collect(flows)
	for _, f := range all {
		if f.Verdict != nil {
			judged[ends{f.Proto, f.Src.Port(), f.Dst}]++
		}
	}
	for _, f := range all {
		key := ends{f.Proto, f.Src.Port(), f.Dst}
		events := live[key]
		if len(events) == 0 || f.Verdict == nil {
			continue
		}
		e := events[len(events)-1]
		if len(events) == judged[key] { // else a flood of them was merged, or repeated
			e = events[at[key]]
		}
		at[key]++
		if open(&f, &e) {
			compared++
			continue
		}
		if f.Cut && e.Reason == egress.ReasonUnreadable.String() {
			continue // the end of the gateway ended the connection, of which the capture says nothing
		}
		compared++
		v := f.Verdict
		if v.Action != e.Action || v.Rule != e.Rule || v.Reason != e.Reason || v.WouldDeny != e.WouldDeny {
			t.Errorf("flow to %v: the review says %s %q %s, the gateway said %s %q %s", f.Dst, v.Action, v.Rule, v.Reason, e.Action, e.Rule, e.Reason)
		}
	}
	return compared
}

// compareRequests holds the requests that the review found in the bytes of plain HTTP connections against those that
// the gateway judged.
func compareRequests(t *testing.T, log *gatewaytest.Recorder, r *review.Report) (compared int64) {
	t.Helper()
	found := map[uint16][]review.Request{} // by the guest's port: what a proxy was asked for goes elsewhere
	for f := range r.Flows() {
		for _, q := range r.Requests {
			if q.Flow == f.ID && q.Scheme == "http" { // no TLS comes about in a replay
				found[f.Src.Port()] = append(found[f.Src.Port()], q)
			}
		}
	}
	for _, e := range log.Events(audit.HTTPRequest) {
		here := found[e.SrcPort]
		if e.Method == "" && len(here) == 0 && strings.Contains(e.Message, "TLS handshake") {
			continue // bytes that are no TLS, where it was awaited
		}
		compared++
		if !slices.ContainsFunc(here, func(q review.Request) bool {
			v := q.Verdict
			return (q.Method == e.Method || slices.Contains(strings.Split(q.Overrides, ","), e.Method)) && q.Path == e.Path && v.Action == e.Action && v.Rule == e.Rule &&
				(v.Reason == e.Reason || e.Status == http.StatusBadGateway) // nobody serves in this world
		}) {
			t.Errorf("the gateway said %s %q %s of %s %s to %v, the review has %+v", e.Action, e.Rule, e.Reason, e.Method, e.Path, e.Dst, here)
		}
	}
	return compared
}

// compareQuestions holds the names that the review found to be asked for against those that the gateway was asked for. more
// says that the gateway may have read fewer.
func compareQuestions(t *testing.T, log *gatewaytest.Recorder, r *review.Report, more bool) {
	t.Helper()
	live, found := map[string]bool{}, map[string]bool{}
	for _, e := range log.Events(audit.DNSQuery) {
		if e.Reason == egress.ReasonInvalid.String() {
			continue // no question that can be read, and in a review none that has a name
		}
		live[strings.Join([]string{e.DNS.Name, e.DNS.Type, e.Action, e.Rule, e.Reason}, " ")] = true
	}
	for _, l := range r.Lookups {
		if l.Verdict.Reason == egress.ReasonInvalid.String() {
			continue
		}
		found[strings.Join([]string{l.Name, l.Type, l.Verdict.Action, l.Verdict.Rule, l.Verdict.Reason}, " ")] = true
	}
	if more {
		maps.DeleteFunc(found, func(name string, _ bool) bool { return !live[name] })
	}
	if !maps.Equal(live, found) {
		t.Errorf("the gateway was asked for %v, the review has %v", slices.Collect(maps.Keys(live)), slices.Collect(maps.Keys(found)))
	}
}
