package review

import (
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
)

// recordedVerdict is the verdict in a comment, which is the text of whoever made the capture.
func recordedVerdict(v *capture.Verdict) Verdict {
	out := Verdict{
		Action: Undecided, Rule: audit.Printable(brief(v.Rule)), Reason: audit.Printable(brief(v.Reason)),
		WouldDeny: v.WouldDeny,
	}
	for _, a := range []egress.Action{egress.Allow, egress.Inspect, egress.Deny} {
		if v.Action == a.String() {
			out.Action = v.Action
		}
	}
	return out
}
