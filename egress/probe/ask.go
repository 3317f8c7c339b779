package probe

import (
	"net/netip"
	"slices"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/egress/session"
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

// Ask judges t by p. A name without an address is taken to have the one that says most: public, or in a range that
// a rule gives to the name. The client is taken to speak TLS or HTTP: what is usual on the port, or, where that is
// denied, the other one.
func Ask(p *policies.Policy, t Target) (Answer, error) {
	rules, err := session.NewRules(p, &egress.Classifier{})
	if err != nil {
		return Answer{}, err
	}
	q := question{rules: rules}
	a := q.ask(t)
	if !t.open() {
		return a, nil
	}
	found := q.mayHave(t)
	for _, r := range slices.Concat(rangesOf(rulesOf(p), t.Name)...) {
		if found && !a.Denied() {
			break
		}
		if t.Addr = r.Addr(); q.mayHave(t) {
			if b := q.ask(t); !found || !b.Denied() {
				a = b
			}
			found = true
		}
	}
	return a, nil
}

// question asks sessions under one policy.
type question struct{ rules *session.Rules }

func (q question) mayHave(t Target) bool { return q.rules.Engine.AllowsAddr(t.Name, t.Addr).Allowed() }

// ask judges t at its address.
func (q question) ask(t Target) Answer {
	first := q.askSaying(t, saidAt(t.Port))
	if !first.Denied() || t.Proto != egress.TCP {
		return first
	}
	other := egress.AppTLS
	if saidAt(t.Port) == other {
		other = egress.AppHTTP
	}
	if second := q.askSaying(t, other); !second.Denied() {
		return second
	}
	return first
}

// askSaying judges t for a client that speaks app, if it is asked to say something.
func (q question) askSaying(t Target, app egress.App) Answer {
	a := Answer{Target: t.String()}
	names := resolved{addr: t.Addr}
	if !t.Name.IsZero() {
		names.names = []hostname.Name{t.Name}
		_, names.mapped = q.rules.Hosts[t.Name]
		if v := q.resolve(&a, t, names.mapped); !v.Allowed() {
			a.conclude(v)
			return a
		}
	}
	v := q.walk(&a, t, names, app)
	if t.open() {
		v.Addr, v.Name = netip.Addr{}, t.Name // the stand-in is nobody's address
	}
	a.conclude(v)
	if t.open() {
		a.Class = "" // of the stand-in
	}
	return a
}

// resolve says whether the name may be resolved, and may have the address.
func (q question) resolve(a *Answer, t Target, mapped bool) egress.Verdict {
	v := q.rules.Engine.DecideName(t.Name)
	if !v.Allowed() {
		a.step("resolve", "name", "refused: "+v.Reason.Sentence())
		return v
	}
	a.step("resolve", "name", "may be resolved")
	if mapped || t.open() {
		return v
	}
	if v = q.rules.Engine.AllowsAddr(t.Name, t.Addr); !v.Allowed() {
		a.step("resolve", "address", t.Addr.String()+" is taken out of answers: "+v.Reason.Sentence())
		return v
	}
	a.step("resolve", "address", t.Addr.String()+" is one that the name may have")
	return v
}

// walk opens the flow, and asks about the request if one was given and requests are seen.
func (q question) walk(a *Answer, t Target, names resolved, app egress.App) egress.Verdict {
	rules := *q.rules
	rules.Trace = func(stage egress.Stage, steps []egress.Step) {
		for _, s := range steps {
			a.step(stage.String(), s.What, s.Result)
		}
	}
	s, step := open(&rules, names, t.Proto, netip.AddrPortFrom(t.Addr, t.Port), session.Known{App: app, Host: t.Name})
	judged := s.Judged()
	v := judged.Verdict
	switch step.Action {
	case session.Dial, session.Relay, session.Inspect:
	case session.ToDNS:
		a.step("connect", "port 53", "msb's own resolver answers here, whatever the address: what follows holds for no packet")
		v, steps := rules.Engine.Explain(&judged.Flow)
		rules.Trace(egress.StageConnect, steps)
		return v
	case session.Drop, session.Reject, session.Refuse, session.NeedBytes, session.NeedNames, session.Wait, session.Continue, session.End:
		v.Action = egress.Deny
	}
	if step.Action != session.Inspect || t.Method == "" && t.Path == "" {
		return v
	}
	asked := request{method: orElse(t.Method, "GET"), path: orElse(t.Path, "/")}
	if fault := httphead.CheckRequest(asked.method, asked.path); fault != nil {
		a.step("request", "form", fault.Message)
		return egress.Verdict{Reason: egress.ReasonInvalid, Name: v.Name, Addr: v.Addr, Class: v.Class}
	}
	if v = requestOn(s, app, asked); v.Action == egress.Allow {
		v.Action = egress.Inspect
	}
	return v
}

func (a *Answer) step(stage, what, result string) {
	a.Steps = append(a.Steps, Step{Stage: stage, What: what, Result: result})
}

func (a *Answer) conclude(v egress.Verdict) {
	a.Action, a.Rule, a.Reason = v.Action.String(), v.Rule, v.Reason.String()
	if v.Class != egress.ClassInvalid {
		a.Class = v.Class.String()
	}
	a.WouldDeny, a.Message = v.WouldDeny, v.Message()
}

// dnsPort is the gateway's own at every address (invariant 6).
const dnsPort = 53

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
