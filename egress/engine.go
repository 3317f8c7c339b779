package egress

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// Engine judges flows, names and addresses by one policy. It is immutable: a
// new policy is a new Engine. Its methods may be called from any goroutine, do
// no I/O and don't allocate (Explain does, and a request under a path rule whose
// path needs decoding).
type Engine struct {
	classifier *Classifier
	floor      *Engine // the operator's policy; nil for none

	allow, deny *ruleIndex
	public      bool // egress.default = "public"
	report      bool // egress.mode = "report"
	inspectAll  bool
	inspectNone bool
	bypass      nameIndex[struct{}]
	secrets     nameIndex[struct{}]
	resolvers   *resolverList
	mapped      map[hostname.Name]mapping
	denyNames   bool // some deny rule goes by name
	denyTCP     []*rule
	watch       *watch // nil where nothing asks for it
}

// mapping is what the engine knows of a line of [hosts].
type mapping struct {
	target policies.Target
	rule   string // what verdicts call it
	// ruled says that an allow rule names the host. Then the rules alone say
	// with which ports, protocols and requests it may be reached; otherwise the
	// line itself allows them all.
	ruled bool
}

// Option changes how New builds an Engine.
type Option func(*Engine)

// WithClassifier has the engine classify with c, which knows the host's
// addresses and the gateway's. Without it, only the static tables apply.
func WithClassifier(c *Classifier) Option {
	return func(e *Engine) {
		if c != nil {
			e.classifier = c
		}
	}
}

// New compiles p and its floors. It fails for rules that package policies would
// have refused too.
func New(p *policies.Policy, opts ...Option) (*Engine, error) { return compile(p, nil, opts...) }

// compile is New for a policy that stands under others, the uppermost first.
func compile(p *policies.Policy, above []*policies.Policy, opts ...Option) (*Engine, error) {
	e := &Engine{
		classifier:  &Classifier{},
		public:      p.Egress.Default == policies.DefaultPublic,
		report:      p.Egress.Mode == policies.Report,
		inspectAll:  p.TLS.Inspect == policies.InspectAll,
		inspectNone: p.TLS.Inspect == policies.InspectNone,
		resolvers:   knownResolvers(),
	}
	for _, o := range opts {
		o(e)
	}
	var err error
	if e.allow, err = compileIndex(p.Egress.Allow, "allow"); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if e.deny, err = compileIndex(p.Egress.Deny, "deny"); err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	e.compileNames(p)
	e.watch = newWatch(p, above)
	if p.Floor != nil {
		if e.floor, err = compile(p.Floor, append(slices.Clip(above), p), WithClassifier(e.classifier)); err != nil {
			return nil, err
		}
		e.floor.keepMappings(e.mapped)
	}
	return e, nil
}

// compileNames fills in what is found by name, and what a connection must be
// looked into for.
func (e *Engine) compileNames(p *policies.Policy) {
	for _, pattern := range p.TLS.Bypass {
		e.bypass.add(pattern, struct{}{})
	}
	for i := range p.Secrets {
		for _, h := range p.Secrets[i].Hosts {
			// At every port: a placeholder at another one is refused legibly
			// only where the connection is looked into.
			e.secrets.add(h.Pattern, struct{}{})
		}
	}
	e.denyNames = e.deny.names.size > 0
	for _, r := range e.deny.all {
		if r.carries(TCP) && (r.byName || r.request) {
			e.denyTCP = append(e.denyTCP, r)
		}
	}
	e.mapped = make(map[hostname.Name]mapping, len(p.Hosts))
	for _, h := range p.Hosts {
		e.mapped[h.Name] = mapping{
			target: h.Target,
			rule:   "hosts." + h.Name.String(),
			ruled:  e.allow.names.has(h.Name),
		}
	}
}

// keepMappings drops the floor's mappings that the policy above it doesn't hold
// with the same target, so that a floor which maps a name to one port of the
// host never vouches for another.
func (e *Engine) keepMappings(above map[hostname.Name]mapping) {
	for name, m := range e.mapped {
		if above[name].target != m.target {
			delete(e.mapped, name)
		}
	}
}

// Decide judges f at its stage. It doesn't keep f.
func (e *Engine) Decide(f *Flow) Verdict { return e.decide(f, nil) }

func (e *Engine) decide(f *Flow, t *trace) Verdict {
	v := e.judge(f, t)
	if e.floor == nil || v.Action == Deny {
		return v
	}
	t.add("operator's floor", "judges too: both must allow")
	return stricter(v, e.floor.decide(f, t))
}

// judge gives the verdict of this policy alone.
func (e *Engine) judge(f *Flow, t *trace) Verdict {
	j := judgement{e: e, f: f, trace: t}
	v := j.run()
	if v.Action == Deny && e.report && v.Reason.Reportable() && !j.final {
		t.add("report mode", "lets through what a rule would deny")
		v.Action, v.WouldDeny = Allow, true
		v.Special = j.class != ClassPublic // the special ranges had their say before
	}
	return v
}

// stricter joins the verdict of a policy with its floor's.
func stricter(v, floor Verdict) Verdict {
	would := v.WouldDeny || floor.WouldDeny
	if strictness(floor) > strictness(v) {
		v = floor
		v.Floor = true
	}
	if v.Action != Deny {
		v.WouldDeny = would
	}
	return v
}

// strictness orders verdicts. At equal actions a would-be denial is kept, so
// that a report names it.
func strictness(v Verdict) int {
	n := 0
	switch v.Action {
	case Allow:
	case Peek:
		n = 2
	case Inspect:
		n = 4
	case Deny:
		n = 6
	}
	if v.WouldDeny {
		n++
	}
	return n
}

// plainAddr is the form in which addresses are looked up and classified.
func plainAddr(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
