package review

import (
	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/gateway"
)

// asks begins a flow to the gateway's own proxy. What it asks for is judged when the gateway answers: the
// names of it are resolved by then, and their records stand before the answer.
func (r *reviewer) asks(id uint32) {
	row := r.table.row(id)
	row.flags |= proxied
	if row.flags&partial != 0 {
		row.flags |= cut
		r.undecided(id)
		return
	}
	r.pending[id] = &pending{stream: stream{next: row.isn + 1}, asks: true}
}

// undecided is the verdict on a request that the capture doesn't hold.
func (r *reviewer) undecided(id uint32) {
	for place, j := range r.judges {
		if j != nil && place != byLearner {
			r.decided(id, place, &egress.Flow{}, egress.Verdict{Action: egress.Peek})
		}
	}
}

// answered judges what a client asked of the proxy. end says that the client left: the gateway judges
// nothing that was not asked to its end.
func (r *reviewer) answered(id uint32, p *pending, end bool) {
	p.asks = false
	row := r.table.row(id)
	src, dst := r.table.ends(row.key)
	asked, whole := gateway.ReadAsked(src, dst, p.first)
	switch {
	case !whole:
		if !end {
			row.flags |= cut
			r.undecided(id)
		}
		delete(r.pending, id)
		return
	case asked.Lookup():
		row.flags |= lookup
		delete(r.pending, id)
		return
	}
	if asked.Target != "" {
		r.table.asked[id] = asked.Target
	}
	wait := false
	for place, j := range r.judges {
		if j != nil && r.ask(id, place, p, asked) {
			wait = true
		}
	}
	if p.refused != nil { // its comment came before the question was known
		r.names.recorded(*p.refused)
	}
	p.first = p.first[asked.Length:] // what follows is said in the tunnel
	if asked.Head != nil {
		p.first = asked.Head
	}
	if !wait {
		r.forget(id, p)
	}
}

// ask puts a request to the proxy before one judge. It reports whether what the client says next decides.
func (r *reviewer) ask(id uint32, place int, p *pending, asked *gateway.Asked) (wait bool) {
	j := r.judges[place]
	a := j.Ask(asked)
	if place != byLearner && !a.Name.Name.IsZero() {
		r.names.add(place, true, dnsguard.Replayed{Name: a.Name.Name, Verdict: a.Name, Addrs: a.Addrs})
	}
	if !a.Unknown || place != byLearner {
		r.decided(id, place, &a.Flow, a.Verdict)
	}
	tunnel := asked.Head == nil
	switch {
	case a.Unknown:
		r.table.row(id).flags |= cut
	case a.Verdict.Action == egress.Peek:
		p.flows[place], p.open[place] = a.Flow, true
		return true
	case a.Verdict.Action == egress.Inspect && (!tunnel || a.Flow.App == egress.AppHTTP):
		p.flows[place], p.web[place] = a.Flow, true
	}
	return false
}
