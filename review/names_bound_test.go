package review

import (
	"fmt"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// TestI11_NamesBeyondTheListAreCounted: a guest can ask for more names than a report lists, and --fail-on sees them.
func TestI11_NamesBeyondTheListAreCounted(t *testing.T) {
	t.Parallel()
	const listed, more = maxLookups, 2*maxLate + 1
	var n nameRows
	n.init()
	for i := range listed + more {
		v := egress.Verdict{Action: egress.Allow, Reason: egress.ReasonRule}
		if i >= listed { // none of those in the list
			v = egress.Verdict{Reason: egress.ReasonNoRule}
		}
		seen := dnsguard.Replayed{Name: hostname.MustParse(fmt.Sprintf("n%d.example", i)), Type: "A", Verdict: v}
		if i == listed { // the answer says more than the question, whose verdict was recorded
			seen.Verdict.Action = egress.Allow
			n.add(byPolicy, true, seen)
			n.add(byPolicy, true, dnsguard.Replayed{Name: seen.Name, Type: "AAAA", Verdict: v})
			n.recorded(capture.Verdict{Kind: capture.KindName, Action: "allow", Name: seen.Name.String()})
			seen.Verdict = v
			n.add(byPolicy, false, seen)
			continue
		}
		n.add(byPolicy, true, seen)
	}
	r := reviewer{names: n, report: &Report{}}
	r.table.init()
	r.finish()
	if got := r.report.Count(Denied); got < more+1 || got > more+2 { // and perhaps the row of the others
		t.Errorf("%d denied names are counted, want %d", got, more+1)
	}
	if got := r.report.Count(IsChanged); got != 2 {
		t.Errorf("%d verdicts have changed, want both of the name that was allowed", got)
	}
	if others := r.report.Lookups[listed]; others.Count != more+1 {
		t.Errorf("%d questions are in no row, want %d", others.Count, more+1)
	}
}

// TestI11_RequestsBeyondTheListAreCounted: a guest can make more requests than a report lists, and --fail-on sees them.
func TestI11_RequestsBeyondTheListAreCounted(t *testing.T) {
	t.Parallel()
	report := &Report{beyond: map[Condition]int{}, table: &table{}}
	rows := requestRows{report: report, list: make([]Request, maxRequests)}
	for _, v := range []Verdict{{Action: "deny"}, {Action: "allow"}, {Action: "allow", Class: "private"}, {Action: Undecided}} {
		if at := rows.add(&Request{Verdict: v, Recorded: &Verdict{Action: "allow"}}); at != unlisted {
			t.Errorf("a request beyond the bound is listed at %d", at)
		}
	}
	for c, want := range map[Condition]int{Denied: 1, IsChanged: 1, Tightened: 1, Loosened: 0, AllowedPrivate: 1, IsUndecided: 1, Unreadable: 0} {
		if got := report.Count(c); got != want {
			t.Errorf("%s: %d, want %d", c, got, want)
		}
	}
	if text := strings.Join(report.Summary(), "\n"); !strings.Contains(text, "requests that are not listed: 4; 1 denied, 1 undecided") || !strings.Contains(text, "1 verdict differs from ") {
		t.Errorf("the summary says\n%s", text)
	}
}
