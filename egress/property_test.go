package egress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// A small world, so that random rules and flows meet often.
var (
	worldNames = names("a.test.example", "b.test.example", "test.example", "c.other.example", "dns.google", "db.corp.example")
	worldHosts = patterns("a.test.example", "b.test.example", "*.test.example", "c.other.example", "*", "dns.google", "*.google", "db.corp.example", "*.corp.example")
	worldAddrs = []string{"93.184.215.14", "93.184.215.15", "8.8.8.8", "2a00:1450:4001::1", "64:ff9b::5db8:d70e", "10.20.0.5", "10.20.0.6", "64:ff9b::a14:5", "169.254.169.254", "127.0.0.1", "93.184.215.77", "192.168.127.1", "198.18.0.7", "fd00::5", "::ffff:10.20.0.5"}
	worldCIDRs = prefixes("93.184.215.14/32", "93.184.215.0/24", "0.0.0.0/0", "::/0", "10.20.0.0/16", "10.0.0.0/8", "169.254.0.0/16", "169.254.169.254/32", "8.8.8.8/32", "127.0.0.0/8", "198.18.0.0/15", "fd00::/8", "64:ff9b::/96", "2a00:1450::/32")
	worldPorts = []uint16{22, 80, 443, 853, 5432}
	worldPaths = []string{"/repos/acme/x", "/repos/acme/x/y", "/repos//acme", "/other", "/repos/acme/%2e%2e/secret", "/repos/%61cme/x", "/repos/acme?x=/other", "*"}
)

func pick[T any](r *rand.Rand, s []T) T { return s[r.IntN(len(s))] }

func randomRule(r *rand.Rand, deny bool) policies.Rule {
	c := policies.Rule{Name: fmt.Sprintf("r%d", r.IntN(1000)), Protocol: policies.Protocol(r.IntN(7))}
	switch {
	case deny && r.IntN(8) == 0:
	case r.IntN(2) == 0:
		for range 1 + r.IntN(2) {
			c.Hosts = append(c.Hosts, pick(r, worldHosts))
		}
		for range r.IntN(3) * r.IntN(2) {
			if !deny {
				c.Within = append(c.Within, pick(r, worldCIDRs))
			}
		}
	default:
		for range 1 + r.IntN(2) {
			c.CIDRs = append(c.CIDRs, pick(r, worldCIDRs))
		}
		c.Private = !deny && r.IntN(2) == 0
	}
	if c.Protocol != policies.ICMP {
		for range r.IntN(3) {
			p := pick(r, worldPorts)
			c.Ports = append(c.Ports, policies.PortRange{First: p, Last: p})
		}
		if r.IntN(6) == 0 {
			c.Ports = append(c.Ports, policies.PortRange{First: 1, Last: 65535})
		}
	}
	if (c.Protocol == policies.HTTPS || c.Protocol == policies.HTTP) && r.IntN(2) == 0 {
		if r.IntN(2) == 0 {
			c.Methods = []string{"GET"}
		}
		if r.IntN(2) == 0 {
			c.Paths = []string{pick(r, []string{"/repos/acme/**", "/repos/*/x", "/**", "/other"})}
		}
	}
	return c
}

func randomPolicy(r *rand.Rand) *policies.Policy {
	p := policies.Default()
	p.Egress.Default = policies.DefaultAction(r.IntN(2))
	if r.IntN(6) == 0 {
		p.Egress.Mode = policies.Report
	}
	for range r.IntN(5) {
		p.Egress.Allow = append(p.Egress.Allow, randomRule(r, false))
	}
	for range r.IntN(3) {
		p.Egress.Deny = append(p.Egress.Deny, randomRule(r, true))
	}
	if r.IntN(3) == 0 {
		p.Hosts = []policies.HostMapping{{Name: worldNames[5], Target: policies.Target{Addr: netip.MustParseAddrPort(pick(r, []string{"127.0.0.1:5000", "10.20.0.5:5432"}))}}}
	}
	if r.IntN(3) == 0 {
		p.Secrets = []policies.Secret{{Name: "T", Hosts: []policies.SecretHost{{Pattern: pick(r, worldHosts)}}}}
	}
	if r.IntN(4) == 0 {
		p.TLS.Bypass = []hostname.Pattern{pick(r, worldHosts)}
	}
	p.TLS.Inspect = policies.Inspect(r.IntN(2))
	return p
}

func randomFlow(r *rand.Rand) Flow {
	f := Flow{Proto: TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr(pick(r, worldAddrs)), pick(r, worldPorts))}
	for range r.IntN(3) {
		f.Pinned = append(f.Pinned, pick(r, worldNames))
	}
	if r.IntN(6) == 0 {
		f.Mapped, f.Pinned, f.Dst = true, worldNames[5:6], netip.AddrPortFrom(netip.MustParseAddr("198.18.0.7"), f.Dst.Port())
	}
	switch r.IntN(6) {
	case 0:
		f.Proto = UDP
		return f
	case 1:
		f.Proto, f.Dst = ICMP, netip.AddrPortFrom(f.Dst.Addr(), 0)
		return f
	}
	f.Stage = Stage(r.IntN(3))
	if f.Stage == StageConnect {
		return f
	}
	f.App = App(1 + r.IntN(4))
	f.Unclear = f.App == AppOpaque && r.IntN(2) == 0
	if f.App < AppOpaque && r.IntN(4) > 0 {
		f.Name = pick(r, worldNames)
		if len(f.Pinned) > 0 && r.IntN(3) > 0 {
			f.Name = pick(r, f.Pinned)
		}
	}
	f.ECH = f.App == AppTLS && r.IntN(6) == 0
	if f.Stage == StageRequest {
		f.App, f.Unclear = App(1+r.IntN(2)), false
		f.Method, f.Path = pick(r, []string{"GET", "POST", "get", "Post"}), pick(r, worldPaths)
	}
	return f
}

func worldClassifier() *Classifier {
	c := NewClassifier(netip.MustParseAddr("192.168.127.1"))
	c.SetHost(netip.MustParseAddr("93.184.215.77"))
	return c
}

// propertyRounds is how many policies a property is tried on, each with 100
// flows.
const propertyRounds = 1000

func everyFlow(t *testing.T, seed uint64, check func(r *rand.Rand, p *policies.Policy, c *Classifier, e *Engine, f Flow) string) {
	t.Helper()
	c := worldClassifier()
	for i := range uint64(propertyRounds) {
		r := rand.New(rand.NewPCG(seed, i))
		p := randomPolicy(r)
		if r.IntN(8) == 0 {
			p.TLS.Inspect = policies.InspectNone
		}
		if r.IntN(4) == 0 {
			p.Floor = randomPolicy(r)
			if r.IntN(8) == 0 {
				p.Floor.TLS.Inspect = policies.InspectNone
			}
			if r.IntN(8) == 0 {
				p.Floor.Floor = randomPolicy(r)
			}
			if r.IntN(2) == 0 {
				p.Floor.Hosts = p.Hosts
			}
			if len(p.Hosts)+len(p.Floor.Hosts) != 0 && (len(p.Hosts) == 0 || len(p.Floor.Hosts) == 0 || p.Hosts[0].Target != p.Floor.Hosts[0].Target) {
				p.Floor.Hosts = nil // the reference knows no differing targets; a test of its own does
			}
			if p.Floor.Floor != nil {
				p.Floor.Floor.Hosts = p.Floor.Hosts
			}
		}
		e := mustEngine(t, p, WithClassifier(c))
		for range 100 {
			f := randomFlow(r)
			if msg := check(r, p, c, e, f); msg != "" {
				v, steps := e.Explain(&f)
				t.Fatalf("seed %d/%d: %s\nflow %+v\npolicy\n%s\nverdict %v %v\nsteps %q", seed, i, msg, f, policies.Encode(p), v.Action, v.Message(), steps)
			}
		}
	}
}

func TestEngineAgreesWithTheReference(t *testing.T) {
	t.Parallel()
	everyFlow(t, 1, func(_ *rand.Rand, p *policies.Policy, c *Classifier, e *Engine, f Flow) string {
		v := e.Decide(&f)
		a, would := refDecide(p, c, f)
		if v.Action != a || v.WouldDeny != would {
			return fmt.Sprintf("engine says %v (would deny: %v), reference %v (%v)", v.Action, v.WouldDeny, a, would)
		}
		return ""
	})
}

// opensIt reports whether r opens the special address of f: by a range of its own, for
// a name that is pinned to it or, in a private rule, for everybody.
func opensIt(r *policies.Rule, f *Flow) bool {
	a := f.Dst.Addr().Unmap()
	in := func(p netip.Prefix) bool { return p.Bits() > 0 && p.Contains(a) }
	named := slices.ContainsFunc(f.Pinned, func(n hostname.Name) bool {
		return slices.ContainsFunc(r.Hosts, func(p hostname.Pattern) bool { return p.Match(n) })
	})
	return r.Private && slices.ContainsFunc(r.CIDRs, func(p netip.Prefix) bool { return p.Contains(a) }) || named && slices.ContainsFunc(r.Within, in)
}

func TestI5_SpecialAddressesNeedRules(t *testing.T) {
	t.Parallel()
	out := 0
	everyFlow(t, 2, func(_ *rand.Rand, p *policies.Policy, c *Classifier, e *Engine, f Flow) string {
		v := e.Decide(&f)
		class := c.class(f.Dst.Addr())
		if v.Action == Deny || f.Mapped || class == ClassPublic {
			return ""
		}
		out++
		if class.final() {
			return "a flow to " + class.String() + " was let out"
		}
		for q := p; q != nil; q = q.Floor {
			if !slices.ContainsFunc(q.Egress.Allow, func(r policies.Rule) bool { return opensIt(&r, &f) }) {
				return "a flow to " + class.String() + " was let out without a rule that opens it"
			}
		}
		if !v.Special || v.Reach(f.Dst) != ReachPrivate {
			return "the dial would be refused by the fuse"
		}
		return ""
	})
	if out < 500 {
		t.Errorf("only %d flows went out: the property says little", out)
	}
}

// What a rule for a name refuses at a special address, no private rule lets out there.
func TestI5_PrivateRulesWidenNoName(t *testing.T) {
	t.Parallel()
	met := 0
	everyFlow(t, 9, func(r *rand.Rand, p *policies.Policy, c *Classifier, e *Engine, f Flow) string {
		named := slices.ContainsFunc(p.Egress.Allow, func(r policies.Rule) bool {
			ref := reference{p, c, f, nil}
			return len(r.Hosts) > 0 && ref.covers(r) && opensIt(&r, &f) && c.class(f.Dst.Addr()) != ClassMetadata
		})
		if p.Floor != nil || f.Mapped || c.class(f.Dst.Addr()) == ClassPublic || !named {
			return ""
		}
		met++
		wider := *p
		private := randomRule(r, false)
		private.Name, private.Hosts, private.Within, private.Methods, private.Paths = "wider", nil, nil, nil, nil
		private.CIDRs, private.Private = []netip.Prefix{netip.PrefixFrom(f.Dst.Addr().Unmap(), f.Dst.Addr().Unmap().BitLen())}, true
		wider.Egress.Allow = append(slices.Clone(p.Egress.Allow), private)
		got, want := mustEngine(t, &wider, WithClassifier(c)).Decide(&f), e.Decide(&f)
		if got.Action != want.Action || got.WouldDeny != want.WouldDeny {
			return fmt.Sprintf("a private rule for the address makes it %v", got.Message())
		}
		return ""
	})
	if met < 100 {
		t.Errorf("only %d flows met a rule with within: the property says little", met)
	}
}

func TestI1_EmptyPoliciesAllowNothing(t *testing.T) {
	t.Parallel()
	c := worldClassifier()
	e := mustEngine(t, policies.Default(), WithClassifier(c))
	r := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		f := randomFlow(r)
		if v := e.Decide(&f); v.Action != Deny || !v.Reason.denies() || v.Message() == "" {
			t.Fatalf("%+v: %v, %q", f, v.Action, v.Message())
		}
	}
	if v := e.Decide(&Flow{}); v.Action != Deny || v.Reason != ReasonInvalid {
		t.Errorf("zero flow: %+v", v)
	}
}

func TestVerdictsAreWellFormed(t *testing.T) {
	t.Parallel()
	everyFlow(t, 4, func(_ *rand.Rand, _ *policies.Policy, _ *Classifier, e *Engine, f Flow) string {
		v := e.Decide(&f)
		x, steps := e.Explain(&f)
		switch {
		case x != v:
			return "Explain comes to another verdict"
		case len(steps) == 0:
			return "no steps"
		case v.Reason.denies() != (v.Action == Deny || v.WouldDeny) && v.Reason != ReasonNeedsName && v.Reason != ReasonNeedsRequest:
			// A joined verdict may carry the closer look of one policy and the
			// would-be denial of the other; nothing else may differ.
			if !v.WouldDeny || v.Action != Allow || e.floor == nil {
				return "reason " + v.Reason.String() + " with action " + v.Action.String()
			}
		case v.Action == Peek && f.Stage != StageConnect:
			return "peek after the name was read"
		case f.Stage == StageRequest && v.Action == Inspect:
			return "inspect at the request"
		case f.Proto != TCP && v.Action != Allow && v.Action != Deny:
			return "a datagram can't be looked into"
		}
		return ""
	})
}

// A client can't gain by what it says: what is denied at connect is denied at
// every later stage too.
func TestI1_LaterStagesNeverWiden(t *testing.T) {
	t.Parallel()
	everyFlow(t, 5, func(_ *rand.Rand, _ *policies.Policy, _ *Classifier, e *Engine, f Flow) string {
		if f.Proto != TCP || f.Stage == StageConnect {
			return ""
		}
		early := f
		early.Stage, early.App, early.Name, early.ECH = StageConnect, AppUnknown, hostname.Name{}, false
		if e.Decide(&early).Action == Deny && e.Decide(&f).Action != Deny {
			return "denied at connect, let out at " + f.Stage.String()
		}
		return ""
	})
}

// What secretproxy gets at StageRequest, it got a pinned name for.
func TestI7_InspectedRequestsHaveAPinnedName(t *testing.T) {
	t.Parallel()
	everyFlow(t, 6, func(_ *rand.Rand, _ *policies.Policy, _ *Classifier, e *Engine, f Flow) string {
		v := e.Decide(&f)
		tlsInspect := f.App == AppTLS && (f.Stage == StageRequest && v.Action == Allow || f.Stage == StageName && v.Action == Inspect)
		if !tlsInspect {
			return ""
		}
		for _, n := range f.Pinned {
			if n == f.Name && !n.IsZero() && !f.ECH {
				return ""
			}
		}
		return "inspected without a pinned name"
	})
}

func TestTightenedAllowsOnlyWhatBothAllow(t *testing.T) {
	t.Parallel()
	c := worldClassifier()
	tried := 0
	for i := range uint64(propertyRounds) {
		r := rand.New(rand.NewPCG(7, i))
		floor, p := randomPolicy(r), randomPolicy(r)
		tight, err := policies.Tighten(floor, p)
		if err != nil {
			continue // refused where no intersection exists
		}
		tried++
		both, one, two := mustEngine(t, tight, WithClassifier(c)), mustEngine(t, p, WithClassifier(c)), mustEngine(t, floor, WithClassifier(c))
		for range 100 {
			f := randomFlow(r)
			if both.Decide(&f).Action != Deny && (one.Decide(&f).Action == Deny || two.Decide(&f).Action == Deny) {
				t.Fatalf("round %d: tightened %v, policy %v, floor %v\nflow %+v\nfloor\n%s\npolicy\n%s", i, both.Decide(&f).Message(), one.Decide(&f).Message(), two.Decide(&f).Message(), f, policies.Encode(floor), policies.Encode(p))
			}
			n, a := pick(r, worldNames), netip.MustParseAddr(pick(r, worldAddrs))
			if both.DecideName(n).Action != Deny && (one.DecideName(n).Action == Deny || two.DecideName(n).Action == Deny) {
				t.Fatalf("round %d: name %v", i, n)
			}
			if both.AllowsAddr(n, a).Action != Deny && (one.AllowsAddr(n, a).Action == Deny || two.AllowsAddr(n, a).Action == Deny) {
				t.Fatalf("round %d: answer %v for %v", i, a, n)
			}
		}
	}
	if tried < propertyRounds/10 {
		t.Errorf("only %d of %d pairs could be tightened: the property says little", tried, propertyRounds)
	}
}

// What a flow needs its name for must resolve, or the rule is dead.
func TestNeededNamesAreResolved(t *testing.T) {
	t.Parallel()
	everyFlow(t, 8, func(_ *rand.Rand, _ *policies.Policy, _ *Classifier, e *Engine, f Flow) string {
		if len(f.Pinned) != 1 || f.Stage != StageConnect || e.floor != nil { // a floor by address resolves no names
			return ""
		}
		bare := f
		bare.Pinned = nil
		if e.Decide(&f).Action != Deny && e.Decide(&bare).Action == Deny && !f.Mapped && e.DecideName(f.Pinned[0]).Action == Deny {
			return "the flow goes out by its name, but the name isn't resolved: " + e.DecideName(f.Pinned[0]).Message()
		}
		return ""
	})
}
