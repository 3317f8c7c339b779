package learn

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

var update = flag.Bool("update", false, "rewrite golden files")

func engine(t *testing.T, text []byte) *egress.Engine {
	t.Helper()
	p, err := policies.Parse("learned.toml", text, nil)
	if err != nil {
		t.Fatalf("the learned policy is not one: %v\n%s", err, text)
	}
	e, err := egress.New(p)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return e
}

// event is what the gateway would log of f.
func event(f *egress.Flow, v egress.Verdict) audit.Event {
	ev := audit.Event{
		Kind: audit.FlowOpen, Proto: f.Proto.String(), Dst: f.Dst.Addr(), Port: f.Dst.Port(),
		Action: v.Action.String(), WouldDeny: v.WouldDeny, Rule: v.Rule, Reason: v.Reason.String(), Class: v.Class.String(),
		Method: f.Method, Path: f.Path,
	}
	for _, n := range f.Pinned {
		ev.Names = append(ev.Names, n.String())
	}
	switch {
	case f.Stage == egress.StageRequest:
		ev.Kind, ev.Host = audit.HTTPRequest, f.Name.String()
	case f.App == egress.AppTLS:
		ev.SNI = f.Name.String()
	case f.App == egress.AppHTTP:
		ev.Host = f.Name.String()
	}
	if f.Stage == egress.StageRequest && f.App == egress.AppTLS {
		ev.SNI = f.Name.String()
	}
	return ev
}

func TestLearnedPolicyReadsWell(t *testing.T) {
	c := New()
	gh := netip.MustParseAddr("140.82.112.5")
	open := func(change func(*audit.Event)) {
		ev := audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: gh, Port: 443, Action: "allow"}
		change(&ev)
		c.Emit(ev)
	}
	for range 3 {
		open(func(ev *audit.Event) {
			ev.Names, ev.SNI, ev.Action = []string{"api.github.com"}, "api.github.com", "inspect"
		})
	}
	for _, path := range []string{"/repos/acme/a", "/repos/acme/a", "/repos/acme/b"} {
		c.Emit(audit.Event{Kind: audit.HTTPRequest, Proto: "tcp", Dst: gh, Port: 443, SNI: "api.github.com", Host: "api.github.com", Method: "GET", Path: path, Action: "allow"})
	}
	open(func(ev *audit.Event) {
		ev.Names, ev.Action, ev.WouldDeny, ev.Reason = []string{"pypi.org"}, "allow", true, "no_rule"
	})
	open(func(ev *audit.Event) { ev.Names, ev.Port = []string{"git.example"}, 22 })
	open(func(ev *audit.Event) { ev.Dst, ev.Port = netip.MustParseAddr("10.20.1.1"), 5432 })
	open(func(ev *audit.Event) {
		ev.Dst, ev.Port, ev.Action, ev.Reason = netip.MustParseAddr("169.254.169.254"), 80, "deny", "metadata_address"
	})
	open(func(ev *audit.Event) {
		ev.Proto, ev.Action, ev.Reason, ev.Names = "udp", "deny", "quic", []string{"pypi.org"}
	})
	open(func(ev *audit.Event) {
		ev.Rule, ev.Dst, ev.Names = "hosts.registry.internal", netip.MustParseAddr("198.18.0.2"), []string{"registry.internal"}
	})
	c.Emit(audit.Event{Kind: audit.DNSQuery, Action: "deny", DNS: &audit.DNSDetail{Name: "tracker.example", Type: "A"}})
	c.Emit(audit.Event{Kind: audit.DNSQuery, Action: "deny", DNS: &audit.DNSDetail{Name: "evil\nname = ", Type: "A"}})

	base := policies.Default()
	base.Hosts = []policies.HostMapping{{Name: hostname.MustParse("registry.internal"), Target: policies.Target{Addr: netip.MustParseAddrPort("127.0.0.1:5000")}}}
	got := c.Policy(base)
	engine(t, got)
	golden := filepath.Join("testdata", "learned.toml")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// randomFlow is a flow of a small world, as far as it got in report mode.
func randomFlow(r *rand.Rand) egress.Flow {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	f := egress.Flow{Proto: egress.TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr(pick("93.184.215.14", "93.184.215.15", "2a00:1450::1", "10.20.1.1", "fd00::7")), []uint16{22, 80, 443, 853, 8443}[r.IntN(5)])}
	if r.IntN(3) > 0 {
		f.Pinned = []hostname.Name{hostname.MustParse(pick("a.example", "b.example", "dns.google"))}
	}
	switch r.IntN(8) {
	case 0:
		f.Proto = egress.UDP
		return f
	case 1:
		f.Proto, f.Dst = egress.ICMP, netip.AddrPortFrom(f.Dst.Addr(), 0)
		return f
	}
	if len(f.Pinned) == 0 || r.IntN(2) == 0 {
		return f
	}
	f.Stage, f.App, f.Name = egress.StageName, egress.AppTLS, f.Pinned[0]
	return f
}

func TestLearnedPoliciesAreNarrow(t *testing.T) {
	t.Parallel()
	watch := policies.Default()
	watch.Egress.Mode = policies.Report
	report, err := egress.New(watch)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(9, seed))
		c := New()
		var flows, shut []egress.Flow
		for range 1 + r.IntN(12) {
			f := randomFlow(r)
			v := report.Decide(&f)
			if v.Action == egress.Deny {
				// A special address: shut while watching, and never proposed.
				c.Emit(event(&f, v))
				shut = append(shut, f)
				continue
			}
			c.Emit(event(&f, v))
			flows = append(flows, f)
		}
		text := c.Policy(nil)
		e := engine(t, text)
		for _, f := range shut {
			if v := e.Decide(&f); v.Action != egress.Deny {
				t.Errorf("seed %d: %+v was shut and is opened by what was learned\n%s", seed, f, text)
			}
		}
		for _, f := range flows {
			if v := e.Decide(&f); v.Action == egress.Deny {
				t.Errorf("seed %d: %+v is not allowed: %v\n%s", seed, f, v.Message(), text)
			}
			for _, n := range f.Pinned {
				if v := e.DecideName(n); v.Action == egress.Deny {
					t.Errorf("seed %d: %v doesn't resolve: %v", seed, n, v.Message())
				}
			}
		}
		stranger := egress.Flow{Proto: egress.TCP, Dst: netip.MustParseAddrPort("203.0.114.9:443"), Pinned: []hostname.Name{hostname.MustParse("c.example")}}
		if v := e.Decide(&stranger); v.Action != egress.Deny {
			t.Errorf("seed %d: a host that was never seen is allowed: %v", seed, v.Message())
		}
	}
}

func TestInspectedRequestsBecomeMethodsAndPaths(t *testing.T) {
	t.Parallel()
	c := New()
	names := []hostname.Name{hostname.MustParse("api.example")}
	dst := netip.MustParseAddrPort("93.184.215.14:443")
	c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: dst.Addr(), Port: 443, Names: []string{"api.example"}, SNI: "api.example", Action: "inspect"})
	for i := range 200 {
		c.Emit(audit.Event{Kind: audit.HTTPRequest, Proto: "tcp", Dst: dst.Addr(), Port: 443, SNI: "api.example", Host: "api.example", Method: "GET", Path: fmt.Sprintf("/v1/items/%d", i), Action: "allow"})
	}
	e := engine(t, c.Policy(nil))
	for _, tt := range []struct {
		method, path string
		want         egress.Action
	}{
		{"GET", "/v1/items/7", egress.Allow}, {"GET", "/v1/items/199", egress.Allow},
		{"POST", "/v1/items/7", egress.Deny}, {"GET", "/v2/items/7", egress.Deny},
	} {
		f := egress.Flow{Proto: egress.TCP, Dst: dst, Pinned: names, Name: names[0], Stage: egress.StageRequest, App: egress.AppTLS, Method: tt.method, Path: tt.path}
		if v := e.Decide(&f); v.Action != tt.want {
			t.Errorf("%s %s: %v, want %v", tt.method, tt.path, v.Message(), tt.want)
		}
	}
}

// TestLearnedPathsStayNarrow: a star in a path must not open every other path, and a path that
// no glob can hold must not make a policy that can't be loaded.
func TestLearnedPathsStayNarrow(t *testing.T) {
	t.Parallel()
	dst := netip.MustParseAddrPort("93.184.215.14:443")
	name := hostname.MustParse("api.example")
	for odd, other := range map[string]string{
		"/v1/a*b": "/v1/x/y", "/v1/**": "/v1/x/y", "/v1/%E2%80%AE/x": "/v1/y", "/v1/%C2%85": "/v1/x/y",
		"/v1/" + strings.Repeat("a", 600): "/v1/x/y", "/v1/" + strings.Repeat("a/", 600): "/v1/b", "/v1/%E2%80%A8": "/other",
	} {
		c := New()
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: dst.Addr(), Port: 443, Names: []string{"api.example"}, SNI: "api.example", Action: "inspect"})
		for _, path := range []string{"/seen", odd} {
			c.Emit(audit.Event{Kind: audit.HTTPRequest, Proto: "tcp", Dst: dst.Addr(), Port: 443, SNI: "api.example", Host: "api.example", Method: "GET", Path: path, Action: "allow"})
		}
		e := engine(t, c.Policy(nil))
		for path, want := range map[string]egress.Action{"/seen": egress.Allow, odd: egress.Allow, other: egress.Deny, "/unseen": egress.Deny} {
			f := egress.Flow{Proto: egress.TCP, Dst: dst, Pinned: []hostname.Name{name}, Name: name, Stage: egress.StageRequest, App: egress.AppTLS, Method: "GET", Path: path}
			if v := e.Decide(&f); v.Action != want {
				t.Errorf("after %.40q: %.40q is %v, want %v", odd, path, v.Action, want)
			}
		}
	}
}

// TestARefusedConnectionWidensNothing: a guest that connects to a host of a rule with paths, and says no name, must
// not have the rule learned without them.
func TestARefusedConnectionWidensNothing(t *testing.T) {
	t.Parallel()
	base, err := policies.Parse("base.toml", []byte("version = 1\n[[egress.allow]]\nname = \"api\"\nhosts = [\"api.example\"]\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	dst := netip.MustParseAddrPort("93.184.215.14:443")
	for _, requests := range []int{0, 1} {
		c := New()
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: dst.Addr(), Port: 443, Names: []string{"api.example"}, SNI: "api.example", Action: "inspect"})
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: dst.Addr(), Port: 443, Names: []string{"api.example"}, Action: "allow", WouldDeny: true, Reason: "no_name"})
		for range requests {
			c.Emit(audit.Event{Kind: audit.HTTPRequest, Proto: "tcp", Dst: dst.Addr(), Port: 443, SNI: "api.example", Host: "api.example", Method: "GET", Path: "/v1/x", Action: "allow"})
		}
		e := engine(t, c.Policy(base))
		name := hostname.MustParse("api.example")
		for path, want := range map[string]egress.Action{"/v1/x": egress.Allow, "/v2/x": egress.Deny} {
			f := egress.Flow{Proto: egress.TCP, Dst: dst, Pinned: []hostname.Name{name}, Name: name, Stage: egress.StageRequest, App: egress.AppTLS, Method: "GET", Path: path}
			if v := e.Decide(&f); v.Action != want {
				t.Errorf("%d requests seen: %s is %v, want %v\n%s", requests, path, v.Action, want, c.Policy(base))
			}
		}
	}
}

func TestI11_CollectorIsBounded(t *testing.T) {
	t.Parallel()
	c := New()
	for i := range maxDestinations + 100 {
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: netip.AddrFrom4([4]byte{93, 1, byte(i >> 8), byte(i)}), Port: 22, Action: "allow"})
		c.Emit(audit.Event{Kind: audit.DNSQuery, DNS: &audit.DNSDetail{Name: fmt.Sprintf("n%d.example", i)}})
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Dst: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Port: 22, Action: "deny", Reason: "special_address"})
		c.Emit(audit.Event{Kind: audit.HTTPRequest, Proto: "tcp", Port: 443, Host: "api.example", Method: fmt.Sprintf("M%d", i), Path: fmt.Sprintf("/d%d/x", i)})
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: "tcp", Port: uint16(i), Dst: netip.MustParseAddr("127.0.0.1"), Action: "deny", Reason: "host_address"})
	}
	if len(c.seen) > maxDestinations || len(c.lookups) > maxDestinations || len(c.private) > maxDestinations || len(c.notes) > maxNotes {
		t.Errorf("%d destinations, %d lookups, %d private, %d notes", len(c.seen), len(c.lookups), len(c.private), len(c.notes))
	}
	for d, u := range c.seen {
		if len(u.methods) > maxMethods || len(u.paths) > 8*maxPaths+1 {
			t.Errorf("%v: %d methods, %d paths", d, len(u.methods), len(u.paths))
		}
	}
	if text := string(c.Policy(nil)); !strings.Contains(text, "more events were seen than could be kept") {
		t.Error("the policy doesn't say that it is incomplete")
	}
}

// TestI12_PortZeroMakesNoRule: a guest may try it, and a file that names it is no policy.
func TestI12_PortZeroMakesNoRule(t *testing.T) {
	c := New()
	for _, proto := range []string{"tcp", "udp"} {
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: proto, Dst: netip.MustParseAddr("93.184.215.14"), Action: "allow", WouldDeny: true, Reason: "no_rule"})
		c.Emit(audit.Event{Kind: audit.FlowOpen, Proto: proto, Dst: netip.MustParseAddr("10.0.0.1"), Action: "allow", Reason: "rule"})
	}
	got := c.Policy(nil)
	engine(t, got)
	if !strings.Contains(string(got), "port 0, which no rule can open") || strings.Contains(string(got), "[[egress.allow]]") {
		t.Errorf("learned:\n%s", got)
	}
}

// Where a name led inside, the learned rule has exactly those addresses as its ranges; where it led outside too, every
// public one. What was refused, or would have been, gives it none.
func TestI5_LearnedInternalNamesGetRanges(t *testing.T) {
	t.Parallel()
	c := New()
	flow := func(name, addr, class, action string, would bool) {
		c.Emit(audit.Event{
			Kind: audit.FlowOpen, Proto: "tcp", Dst: netip.MustParseAddr(addr), Port: 443, Class: class,
			Action: action, WouldDeny: would, Reason: map[bool]string{true: "special_address", false: "rule"}[would || action == "deny"],
			Names: []string{name}, SNI: name,
		})
	}
	flow("wiki.corp.example", "10.8.0.7", "private", "allow", false)
	flow("wiki.corp.example", "10.8.0.9", "private", "allow", false)
	flow("both.example", "10.8.0.8", "private", "allow", false)
	flow("both.example", "93.184.215.14", "", "allow", false)
	flow("outside.example", "93.184.215.15", "", "allow", false)
	flow("tried.example", "10.8.0.10", "private", "deny", false)
	flow("tried.example", "10.8.0.11", "private", "allow", true)
	text := c.Policy(nil)
	e := engine(t, text)
	for _, tt := range []struct {
		name, addr string
		open       bool
	}{
		{"wiki.corp.example", "10.8.0.7", true}, {"wiki.corp.example", "10.8.0.9", true}, {"wiki.corp.example", "10.8.0.8", false}, {"wiki.corp.example", "93.184.215.14", false},
		{"both.example", "10.8.0.8", true}, {"both.example", "93.184.215.99", true}, {"both.example", "10.8.0.7", false},
		{"outside.example", "93.184.215.15", true}, {"outside.example", "10.8.0.7", false},
		{"tried.example", "10.8.0.10", false}, {"tried.example", "10.8.0.11", false},
	} {
		n, err := hostname.Parse(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		v := e.Decide(&egress.Flow{
			Proto: egress.TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr(tt.addr), 443), Pinned: []hostname.Name{n},
			Stage: egress.StageName, App: egress.AppTLS, Name: n,
		})
		if open := v.Action != egress.Deny; open != tt.open {
			t.Errorf("%s at %s: %s, want open: %v\n%s", tt.name, tt.addr, v.Message(), tt.open, text)
		}
	}
	if strings.Contains(string(text), "\nprivate = true") {
		t.Errorf("a private rule lets in who never asked for the name:\n%s", text)
	}
}
