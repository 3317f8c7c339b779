package probe

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Answer is the judgement of one target.
type Answer struct {
	// Target as it was understood.
	Target string `json:"target"`
	// Action is "allow", "deny" or "inspect".
	Action string `json:"action"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason"`
	// Class is the address class, "" for a name whose address is not known.
	Class string `json:"class,omitempty"`
	// WouldDeny marks what report mode lets through.
	WouldDeny bool   `json:"would_deny,omitempty"`
	Message   string `json:"message"`
	Steps     []Step `json:"steps"`
}

// Step is one step of the judgement, at one stage of the flow.
type Step struct {
	// Stage is "resolve", "connect", "name" or "request".
	Stage  string `json:"stage"`
	What   string `json:"step"`
	Result string `json:"result"`
}

// Denied reports whether the target can't be reached.
func (a *Answer) Denied() bool { return a.Action == egress.Deny.String() }

// Ask judges t by p, whose engine is e. A name without an address is taken to have
// the one that says most: public, or in a range that a rule gives to the name.
func Ask(e *egress.Engine, p *policies.Policy, t Target) Answer {
	a := askAt(e, p, t)
	if !t.open() {
		return a
	}
	found := e.AllowsAddr(t.Name, standIn).Allowed()
	for _, r := range slices.Concat(rangesOf(rulesOf(p), t.Name)...) {
		if found && !a.Denied() {
			break
		}
		if t.Addr = r.Addr(); e.AllowsAddr(t.Name, t.Addr).Allowed() {
			if b := askAt(e, p, t); !found || !b.Denied() {
				a = b
			}
			found = true
		}
	}
	return a
}

// askAt judges t at its address.
func askAt(e *egress.Engine, p *policies.Policy, t Target) Answer {
	a := Answer{Target: t.String()}
	q := question{engine: e, answer: &a, flow: egress.Flow{Proto: t.Proto, Dst: addrPort(t)}}
	if !t.Name.IsZero() {
		if v := e.DecideName(t.Name); !v.Allowed() {
			a.step("resolve", "name", "refused: "+v.Reason.Sentence())
			a.conclude(v, false)
			return a
		}
		a.step("resolve", "name", "may be resolved")
		q.flow.Pinned = []hostname.Name{t.Name}
		q.flow.Mapped = mapped(p, t.Name)
		if v := e.AllowsAddr(t.Name, t.Addr); !q.flow.Mapped && !t.open() {
			if !v.Allowed() {
				a.step("resolve", "address", t.Addr.String()+" is taken out of answers: "+v.Reason.Sentence())
				a.conclude(v, false)
				return a
			}
			a.step("resolve", "address", t.Addr.String()+" is one that the name may have")
		}
	}
	if t.Port == dnsPort && t.Proto != egress.ICMP {
		a.step("connect", "port 53", "msb's own resolver answers here, whatever the address: what follows holds for no packet")
	}
	v, inspected := q.walk(t)
	if t.open() {
		v.Addr, v.Name = netip.Addr{}, t.Name // the stand-in is nobody's address
	}
	a.conclude(v, inspected)
	if t.open() {
		a.Class = "" // of the stand-in
	}
	return a
}

// dnsPort is the gateway's own at every address (invariant 6).
const dnsPort = 53

func mapped(p *policies.Policy, name hostname.Name) bool {
	for _, m := range p.Hosts {
		if m.Name == name {
			return true
		}
	}
	return false
}

// question walks one flow through its stages.
type question struct {
	engine *egress.Engine
	answer *Answer
	flow   egress.Flow
}

func (q *question) walk(t Target) (v egress.Verdict, inspected bool) {
	v = q.ask(egress.StageConnect)
	if v.Action == egress.Peek {
		q.flow.App, q.flow.Name = saidAt(t.Port), t.Name
		v = q.ask(egress.StageName)
		if v.Action == egress.Peek { // nothing more will be known: the gateway denies it
			v.Action = egress.Deny
		}
	}
	if v.Action != egress.Inspect {
		return v, false
	}
	if t.Method == "" && t.Path == "" {
		return v, true
	}
	q.flow.App, q.flow.Name = saidAt(t.Port), t.Name
	q.flow.Method, q.flow.Path = orElse(t.Method, "GET"), orElse(t.Path, "/")
	return q.ask(egress.StageRequest), true
}

func (q *question) ask(stage egress.Stage) egress.Verdict {
	q.flow.Stage = stage
	v, steps := q.engine.Explain(&q.flow)
	for _, s := range steps {
		q.answer.step(stage.String(), s.What, s.Result)
	}
	return v
}

func (a *Answer) step(stage, what, result string) {
	a.Steps = append(a.Steps, Step{Stage: stage, What: what, Result: result})
}

func (a *Answer) conclude(v egress.Verdict, inspected bool) {
	a.Action, a.Rule, a.Reason = v.Action.String(), v.Rule, v.Reason.String()
	if v.Action == egress.Allow && inspected {
		a.Action = egress.Inspect.String()
	}
	if v.Class != egress.ClassInvalid {
		a.Class = v.Class.String()
	}
	a.WouldDeny, a.Message = v.WouldDeny, v.Message()
}

// saidAt is what a well-behaved client says first on a port.
func saidAt(port uint16) egress.App {
	if port == 80 || port == 8080 {
		return egress.AppHTTP
	}
	return egress.AppTLS
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
