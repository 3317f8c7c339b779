package review

import (
	"fmt"
	"testing"

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
		n.add(byPolicy, true, dnsguard.Replayed{Name: hostname.MustParse(fmt.Sprintf("n%d.example", i)), Type: "A", Verdict: v})
	}
	r := reviewer{names: n, report: &Report{}}
	r.table.init()
	r.finish()
	if got := r.report.Count(Denied); got < more || got > more+1 { // and perhaps the row of the others
		t.Errorf("%d denied names are counted, want %d", got, more)
	}
}
