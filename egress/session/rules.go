package session

import (
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// ProxyPort is where the gateway's own addresses take requests as an HTTP proxy, for clients that are configured to
// use one. It is no second way out: the sandbox's own resolver looks up the name, and the flow is judged as one that
// the client opens itself.
const ProxyPort = 3128

// Rules is everything that a flow is judged by. It never changes: a new policy is a new Rules.
type Rules struct {
	Engine *egress.Engine
	// Via is the upstream proxy of [tls] via; nil for none.
	Via *url.URL
	// Hosts are the targets of [hosts].
	Hosts map[hostname.Name]policies.Target
	// Gateway holds the gateway's own addresses on the link.
	Gateway []netip.Addr
	// Spent reports whether [limits] egress_bytes is used up; nil for never.
	Spent func() bool
	// Owns reports whether the host's kernel delivers packets to dst locally. It is called at each judgement of a
	// flow; nil means never, as in a review, which has no kernel to ask.
	Owns func(proto egress.Proto, dst netip.AddrPort) bool
	// Approval returns how long a denial waits for a person to approve the flow; zero, or a nil Approval, means
	// not at all. It is called for denials by rules and by the default only: no person can open special-purpose
	// addresses.
	Approval func(f *egress.Flow, v egress.Verdict) time.Duration
	// Trace receives the steps of each judgement; may be nil.
	Trace func(stage egress.Stage, steps []egress.Step)
}

// decide asks the engine.
func (r *Rules) decide(f *egress.Flow) egress.Verdict {
	if r.Trace == nil {
		return r.Engine.Decide(f)
	}
	v, steps := r.Engine.Explain(f)
	r.Trace(f.Stage, steps)
	return v
}

// NewRules returns the rules of p. gateway are the gateway's own addresses.
func NewRules(p *policies.Policy, c *egress.Classifier, gateway ...netip.Addr) (*Rules, error) {
	engine, err := egress.New(p, egress.WithClassifier(c))
	if err != nil {
		return nil, err
	}
	r := &Rules{Engine: engine, Owns: c.Owns, Gateway: gateway, Hosts: make(map[hostname.Name]policies.Target, len(p.Hosts))}
	for _, m := range p.Hosts {
		r.Hosts[m.Name] = m.Target
	}
	if p.TLS.Via != "" {
		if r.Via, err = url.Parse(p.TLS.Via); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *Rules) owns(f *egress.Flow) bool {
	return r.Owns != nil && !f.Mapped && r.Owns(f.Proto, f.Dst)
}

// leadsElsewhere reports whether [hosts] gives n a target, and so no address that was resolved.
func (r *Rules) leadsElsewhere(n hostname.Name) bool {
	_, ok := r.Hosts[n]
	return ok
}

func (r *Rules) spent() bool { return r.Spent != nil && r.Spent() }

// isGateway reports whether a is the gateway itself.
func (r *Rules) isGateway(a netip.Addr) bool { return slices.Contains(r.Gateway, a) }

// Names knows what was resolved: the pins of a live resolver, or the answers in a capture.
type Names interface {
	// Pinned returns the names that addr was an answer for.
	Pinned(addr netip.Addr) []hostname.Name
	// Mapped returns the name of [hosts] that addr was given out for.
	Mapped(addr netip.Addr) (hostname.Name, bool)
}
