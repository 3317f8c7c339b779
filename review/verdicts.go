package review

import (
	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
)

// verdicts are those of the judges: the table's rows and the learner take them.
type verdicts struct {
	judges *judges
	table  *table
}

// keep keeps what a session has decided.
func (r *verdicts) keep(id uint32, place int, s *session.Session, step *session.Step) {
	j := s.Judged()
	if step.Action == session.NeedBytes {
		if place == byLearner {
			return // it is taught when it is known
		}
		j.Verdict.Action = egress.Peek // an upstream proxy may need the name where the policy doesn't
	}
	r.decided(id, place, &j.Flow, j.Verdict)
}

// decided keeps the verdict of one judge.
func (r *verdicts) decided(id uint32, place int, f *egress.Flow, v egress.Verdict) {
	row := r.table.row(id)
	switch place {
	case byPolicy:
		row.verdict = r.table.verdict(flowVerdict(f, v))
	case byAgainst:
		row.against = r.table.verdict(flowVerdict(f, v))
	case byLearner:
		r.judges[byLearner].learned.Emit(eventOf(f, v))
	}
	if place != byLearner {
		r.table.name(row, f)
	}
}

// undecided is the verdict on a request that the capture doesn't hold.
func (r *verdicts) undecided(id uint32) {
	for place, j := range r.judges {
		if j != nil && place != byLearner {
			r.decided(id, place, &egress.Flow{}, egress.Verdict{Action: egress.Peek})
		}
	}
}

// eventOf is what the gateway's audit log would hold of a verdict.
func eventOf(f *egress.Flow, v egress.Verdict) audit.Event {
	e := audit.Event{
		Kind: audit.FlowOpen, Proto: f.Proto.String(), SrcPort: f.Src.Port(), Dst: f.Dst.Addr(), Port: f.Dst.Port(),
		Action: v.Action.String(), WouldDeny: v.WouldDeny, Rule: v.Rule, Reason: v.Reason.String(),
	}
	for _, n := range f.Pinned {
		e.Names = append(e.Names, n.String())
	}
	if f.Mapped {
		e.Target = "[hosts]" // that it leads somewhere is what counts
	}
	if f.App == egress.AppTLS {
		e.SNI = f.Name.String()
	} else {
		e.Host = f.Name.String()
	}
	return e
}
