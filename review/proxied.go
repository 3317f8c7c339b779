package review

import (
	"net/netip"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
)

// asks begins a flow to the gateway's own proxy. What it asks for is judged when the gateway answers: the
// names of it are resolved by then, and their records stand before the answer.
func (r *firstBytes) asks(id uint32, p *pending) {
	row := r.verdicts.table.row(id)
	row.flags |= proxied
	if row.flags&partial != 0 {
		row.flags |= cut
		r.verdicts.undecided(id)
		return
	}
	r.live[id] = p
}

// ask gives what the client said so far to the sessions, as the gateway reads it: bytes that come
// together with a CONNECT are judged otherwise than those that follow it.
func (r *firstBytes) ask(p *pending) {
	for place, s := range p.sessions {
		if p.open[place] && p.proxySteps[place].Action != session.NeedNames {
			p.proxySteps[place] = s.Data(p.first, session.More)
			p.open[place] = s.Asks()
		}
	}
}

// proxyResult judges what a client asked of the proxy, at the moment of the answer or at the connection's end. A
// client that left before its request was complete is denied.
func (r *firstBytes) proxyResult(id uint32, p *pending, end session.Ending) {
	row := r.verdicts.table.row(id)
	incomplete := p.sessions[byPolicy].Asks()
	p.asks, p.open = false, [maxJudges]bool{}
	if incomplete {
		if end == session.More {
			row.flags |= cut
			r.verdicts.undecided(id)
		}
		for place, s := range p.sessions {
			if s != nil && end != session.More {
				step := s.Data(p.first, end)
				r.verdicts.keep(id, place, s, &step)
			}
		}
		delete(r.live, id)
		return
	}
	request, _ := p.sessions[byPolicy].Proxied()
	if p.proxySteps[byPolicy].Action == session.ToDNS {
		row.flags |= lookup
		delete(r.live, id)
		return
	}
	if request != nil && request.Connect && len(p.first) > request.Length && !p.tunnels {
		r.impatient(id, p)
		return
	}
	if request != nil {
		r.verdicts.table.proxyTargets[id] = request.Target()
		p.first = p.first[request.Length:] // what follows is said in the tunnel
		if !request.Connect {
			p.first = request.Head
		}
	}
	p.since = r.now
	wait := false
	for place, s := range p.sessions {
		if s == nil {
			continue
		}
		r.resolved(id, place, p)
		wait = wait || p.open[place]
	}
	if p.refused != nil { // its comment came before the question was known
		r.names.recorded(*p.refused)
	}
	if !wait {
		r.forget(id, p)
	}
}

// impatient denies the request of a client that did not wait for the answer to its CONNECT. The gateway refuses such a
// request if it read the bytes behind it at the same time; only its answer shows whether it did.
func (r *firstBytes) impatient(id uint32, p *pending) {
	for place, s := range p.sessions {
		if s != nil {
			f := egress.Flow{Proto: egress.TCP}
			r.verdicts.decided(id, place, &f, egress.Verdict{Reason: egress.ReasonUnreadable})
		}
	}
	delete(r.live, id)
}

// resolved goes on with one session of a request to the proxy, whose name is resolved by now.
func (r *firstBytes) resolved(id uint32, place int, p *pending) {
	s, step := p.sessions[place], p.proxySteps[place]
	if step.Action == session.NeedNames {
		addrs, known := r.addrs(place, step.Name)
		if !known {
			r.verdicts.table.row(id).flags |= cut
			if place != byLearner {
				f := s.Judged().Flow
				r.verdicts.decided(id, place, &f, egress.Verdict{Action: egress.Peek, Name: step.Name})
			}
			return
		}
		var err error
		if len(addrs) == 0 {
			err = &session.NameError{Reason: egress.ReasonRebinding, Err: dnsguard.ErrRefused}
		}
		step = s.Resolved(addrs, err)
	}
	p.keepSession(place, s, &step)
	r.verdicts.keep(id, place, s, &step)
}

// addrs is where a name that was asked of the proxy is, as far as the capture tells: none if it was refused.
func (r *firstBytes) addrs(place int, name hostname.Name) (addrs []netip.Addr, known bool) {
	addrs, verdict := r.verdicts.judges[place].names.Resolve(name)
	if place != byLearner {
		r.names.add(place, true, dnsguard.Replayed{Name: name, Verdict: verdict, Addrs: addrs})
	}
	return addrs, len(addrs) > 0 || !verdict.Allowed()
}
