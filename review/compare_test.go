package review_test

import (
	"net/netip"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/review"
)

// ends are what an audit event and a reviewed flow both know.
type ends struct {
	proto   string
	srcPort uint16
	dst     netip.AddrPort
}

// compare holds the review's verdicts against those of the gateway that the same frames went through:
// where the gateway gave one, they must be the same. A flow without one was dropped by the frame guard,
// or ended before its name was read.
func (g *guest) compare(r *review.Report) (compared int64) {
	g.t.Helper()
	live := map[ends]audit.Event{}
	for _, e := range g.audit.Events(audit.FlowOpen) {
		at := netip.AddrPortFrom(e.Dst, e.Port)
		if e.Proxy.IsValid() {
			at = e.Proxy
		}
		live[ends{e.Proto, e.SrcPort, at}] = e
	}
	for f := range r.Flows() {
		e, ok := live[ends{f.Proto, f.Src.Port(), f.Dst}]
		if !ok || f.Verdict == nil {
			continue
		}
		compared++
		v := f.Verdict
		if v.Action != e.Action || v.Rule != e.Rule || v.Reason != e.Reason || v.WouldDeny != e.WouldDeny {
			g.t.Errorf("flow to %v: the review says %s %q %s, the gateway said %s %q %s", f.Dst, v.Action, v.Rule, v.Reason, e.Action, e.Rule, e.Reason)
		}
	}
	return compared
}
