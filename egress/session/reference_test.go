package session

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// The reference is written from docs/policy.md and shares no code with the session or the engine: plain
// structs, loops over all rules, and the whole conversation at hand.

// refRule is a rule of docs/policy.md, section "Rules".
type refRule struct {
	deny     bool
	host     string // "" for a rule by address or about everything
	addr     string // one address, "" for none
	protocol string
	port     uint16 // 0 for all
	get      bool   // methods = ["GET"]
	private  bool
	within   string // one address, "" for every public one
}

// refPolicy is a policy as far as the reference knows them.
type refPolicy struct {
	public  bool
	via     bool
	inspect bool // "all"
	rules   []refRule
	// line has a line of [hosts], and every flow goes to its name.
	line bool
}

// refLine is the name of the line of [hosts], refMapped the address that the guest sees.
const refLine, refMapped = "db.internal", "198.18.0.7"

func (p *refPolicy) text() string {
	var b strings.Builder
	if p.public {
		b.WriteString("[egress]\ndefault = \"public\"\n")
	}
	for i, r := range p.rules {
		kind := "allow"
		if r.deny {
			kind = "deny"
		}
		fmt.Fprintf(&b, "[[egress.%s]]\nname = \"r%d\"\n", kind, i)
		if r.protocol != "" {
			fmt.Fprintf(&b, "protocol = %q\n", r.protocol)
		}
		if r.host != "" {
			fmt.Fprintf(&b, "hosts = [%q]\n", r.host)
		}
		if r.addr != "" {
			fmt.Fprintf(&b, "cidrs = [\"%s/32\"]\n", r.addr)
		}
		if r.port != 0 {
			fmt.Fprintf(&b, "ports = [%d]\n", r.port)
		}
		if r.private {
			b.WriteString("private = true\n")
		}
		if r.within != "" {
			fmt.Fprintf(&b, "within = [\"%s/32\"]\n", r.within)
		}
		if r.get {
			b.WriteString("methods = [\"GET\"]\n")
		}
	}
	b.WriteString("[tls]\n")
	if p.via {
		b.WriteString("via = \"http://192.0.2.1:3128\"\n")
	}
	if p.inspect {
		b.WriteString("inspect = \"all\"\n")
	}
	if p.line {
		fmt.Fprintf(&b, "[hosts]\n%q = \"127.0.0.1:5432\"\n", refLine)
	}
	return b.String()
}

// refTalk is a whole conversation.
type refTalk struct {
	proto  egress.Proto
	addr   string
	port   uint16
	pinned string // the one name that is pinned to addr
	kind   string // tls, http, other, unclear, silent, broken-tls, broken-http, gone
	name   string // in the ClientHello or the Host field
	bytes  string
}

// matches reports whether a rule is about the destination: by its address, or by the name pinned to it.
func (r *refRule) matches(k *refTalk, name string) bool {
	switch {
	case r.port != 0 && r.port != k.port:
		return false
	case r.host != "":
		return r.host == name
	case r.addr != "":
		return r.addr == k.addr
	}
	return true
}

func (k *refTalk) special() bool { return strings.HasPrefix(k.addr, "10.") }

// carries reports whether a rule is about the transport of a flow.
func (r *refRule) carries(proto egress.Proto) bool {
	switch r.protocol {
	case "udp":
		return proto == egress.UDP
	case "icmp":
		return proto == egress.ICMP
	}
	return proto == egress.TCP
}

// leads reports whether a rule for the pinned name has the special address in its ranges.
func (r *refRule) leads(k *refTalk) bool {
	return !r.deny && r.host != "" && r.within == k.addr && r.matches(k, k.pinned)
}

// about reports whether an allow rule may speak for the destination: a name within its ranges; an address if
// it is public, or the rule private and no rule for the name there is about the flow.
func (p *refPolicy) about(r *refRule, k *refTalk) bool {
	switch {
	case !r.matches(k, k.pinned):
		return false
	case r.host != "" && r.within == "":
		return !k.special()
	case r.host != "":
		return r.leads(k)
	}
	reserved := slices.ContainsFunc(p.rules, func(o refRule) bool { return o.leads(k) && o.reserves(k.proto) })
	return !k.special() || r.private && !reserved
}

// reserves reports whether a rule for a name has its port for itself: UDP too where it is about TLS or HTTP.
func (r *refRule) reserves(proto egress.Proto) bool {
	return r.carries(proto) || proto == egress.UDP && r.protocol != "tcp" && r.protocol != "icmp"
}

// opened reports whether some rule opens a special address for the flow.
func (p *refPolicy) opened(k *refTalk) bool {
	return slices.ContainsFunc(p.rules, func(r refRule) bool { return !r.deny && r.carries(k.proto) && p.about(&r, k) })
}

// open reports whether flows are let out without a rule: by the default, or to the name of a line of [hosts], if no
// allow rule has that name.
func (p *refPolicy) open(k *refTalk) bool {
	if p.line {
		return !slices.ContainsFunc(p.rules, func(r refRule) bool { return !r.deny && r.host == refLine })
	}
	return p.public && !k.special()
}

// before is what becomes of a flow of which nothing was read: "deny", "relay", "read", "inspect" or "drop".
func (p *refPolicy) before(k *refTalk) string {
	switch {
	case k.proto != egress.ICMP && k.port == 53:
		return "dns"
	case k.proto == egress.UDP && k.port == 5353:
		return "drop"
	case k.special() && !p.opened(k):
		return "deny" // 1. special-purpose ranges
	case p.line && k.proto == egress.ICMP:
		return "deny" // a line stands for ports
	}
	public, via := p.open(k), p.via && !k.special() && !p.line
	for _, r := range p.rules { // 2. deny rules
		if r.deny && r.matches(k, k.pinned) {
			return "deny"
		}
	}
	relay, named, web := false, false, false // 3. allow rules
	for _, r := range p.rules {
		if r.deny || !p.about(&r, k) {
			continue
		}
		if r.protocol == "https" && (r.get || p.inspect || p.fronted()) { // inspected, whatever the name
			web = web || k.proto == egress.TCP
			continue
		}
		switch r.protocol {
		case "tcp":
			relay = relay || k.proto == egress.TCP
		case "udp":
			relay = relay || k.proto == egress.UDP
		case "icmp":
			relay = relay || k.proto == egress.ICMP
		case "https", "tls":
			named = named || k.proto == egress.TCP
		case "http":
			web = web || k.proto == egress.TCP
		}
	}
	if k.proto != egress.TCP {
		if relay || public && (k.proto != egress.UDP || !p.watches(k)) {
			return "relay"
		}
		return "deny"
	}
	switch {
	case relay && (!via || k.port != 443):
		return "relay"
	case relay, named:
		return "read"
	case web && !public:
		return "inspect"
	case web:
		return "read"
	case public && (p.watches(k) || p.fronted() || via && k.port == 443):
		return "read"
	case public:
		return "relay"
	}
	return "deny"
}

// watches reports whether names or requests on the port matter where the default lets the flow out: to a deny
// rule by name, an https rule that QUIC would go around, or inspect = "all".
func (p *refPolicy) watches(k *refTalk) bool {
	for _, r := range p.rules {
		if k.proto == egress.UDP && !r.deny && strings.Contains("https tls http", r.protocol) && r.protocol != "" && p.about(&r, k) {
			return true
		}
	}
	return (k.proto == egress.TCP || k.port == 443) && p.deniesNames(k) || p.inspect && k.port == 443
}

// fronted reports whether the Host of every request matters: to a deny rule by name, or one about requests, and
// under "public" only if all is inspected.
func (p *refPolicy) fronted() bool {
	for _, r := range p.rules {
		if (r.deny && r.host != "" || r.get) && (!p.public || p.inspect) {
			return true
		}
	}
	return false
}

// deniesNames reports whether a deny rule by name may be about a web connection to the port.
func (p *refPolicy) deniesNames(k *refTalk) bool {
	for _, r := range p.rules {
		if r.deny && r.host != "" && (k.port == 443 || k.port == 80) {
			return true
		}
	}
	return false
}

// outcome is what becomes of the whole conversation.
func (p *refPolicy) outcome(k *refTalk) string {
	first := p.before(k)
	if first != "read" {
		return map[string]string{"dns": "to dns", "drop": "drop", "deny": "reject", "relay": "dial", "inspect": "inspect"}[first]
	}
	return p.read(k)
}

// read is what becomes of a connection whose client's first bytes are awaited.
func (p *refPolicy) read(k *refTalk) string {
	switch {
	case k.kind == "broken-tls", k.kind == "broken-http", k.kind == "gone", p.before(k) == "deny":
		return "refuse"
	}
	for _, r := range p.rules { // what the client says is judged too
		if r.deny && (k.kind == "tls" || k.kind == "http") && r.matches(k, k.name) {
			return "refuse"
		}
	}
	relay, opened := false, false
	for _, r := range p.rules {
		if r.deny || !p.about(&r, k) {
			continue
		}
		same := r.host == "" || r.host == k.name && k.name == k.pinned
		switch {
		case r.protocol == "tcp":
			relay = true
		case r.protocol == "tls" && k.kind == "tls" && same:
			relay = true
		case r.protocol == "https" && k.kind == "tls" && same:
			if r.get || p.inspect || p.fronted() {
				opened = true
			} else {
				relay = true
			}
		case r.protocol == "http" && k.kind == "http" && same:
			opened = true
		}
	}
	switch {
	case relay && k.kind == "http", !relay && opened: // every request of plain HTTP is judged
		return "inspect"
	case relay:
		return "dial"
	case !p.open(k):
		return "refuse"
	case k.kind == "silent" && p.fronted(), k.kind == "unclear" && (p.deniesNames(k) || p.fronted() || p.inspect):
		return "refuse"
	case k.kind == "tls" && (p.inspect || p.fronted()), k.kind == "http" && (p.deniesNames(k) || p.fronted()): // 4. the default
		if k.name == k.pinned && k.name != "" || k.kind == "http" && k.name == "" {
			return "inspect"
		}
		return "refuse"
	case k.kind == "http":
		return "inspect"
	}
	return "dial"
}

var refHellos = map[string]string{}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// refRandomPolicy is one that package policies takes.
func refRandomPolicy(r *rand.Rand) refPolicy { return refValid(r, refAnyPolicy) }

func refValid(r *rand.Rand, random func(*rand.Rand) refPolicy) refPolicy {
	for {
		p := random(r)
		if _, err := policies.Parse("test.toml", []byte("version = 1\n"+p.text()), nil); err == nil {
			return p
		}
	}
}

func refAnyPolicy(r *rand.Rand) refPolicy {
	p := refPolicy{public: r.IntN(3) == 0, via: r.IntN(3) == 0, inspect: r.IntN(4) == 0}
	for range r.IntN(6) {
		p.rules = append(p.rules, pick(r,
			refRule{host: "web.example.com", protocol: "https", port: 443},
			refRule{host: "web.example.com", protocol: "https", port: 443, get: true},
			refRule{host: "api.example.com", protocol: "tls", port: 443},
			refRule{host: "web.example.com", protocol: "http", port: 80},
			refRule{host: "api.example.com", protocol: "http", port: 80, get: true},
			refRule{host: "api.example.com", protocol: "tcp", port: 443},
			refRule{addr: "93.184.215.14", protocol: "tcp", port: 443},
			refRule{addr: "93.184.215.14", protocol: "udp", port: 443},
			refRule{addr: "93.184.215.15", protocol: "icmp"},
			refRule{host: "web.example.com", protocol: "https", port: 443, get: true, within: "10.0.0.1"},
			refRule{host: "web.example.com", protocol: "tls", port: 443, within: "10.0.0.1"},
			refRule{host: "web.example.com", protocol: "tcp", port: 22, within: "10.0.0.1"},
			refRule{host: "api.example.com", protocol: "udp", port: 443, within: "10.0.0.1"},
			refRule{host: "web.example.com", protocol: "http", port: 80, within: "10.0.0.1"},
			refRule{addr: "10.0.0.1", protocol: "tcp", port: 443, private: true},
			refRule{addr: "10.0.0.1", protocol: "tcp", port: 80, private: true},
			refRule{addr: "10.0.0.1", protocol: "udp", port: 443, private: true},
			refRule{addr: "10.0.0.1", protocol: "icmp", private: true},
			refRule{deny: true, host: "web.example.com"},
			refRule{deny: true, host: "evil.example.com"},
			refRule{deny: true, addr: "93.184.215.15"},
			refRule{deny: true, port: 22},
		))
	}
	return p
}

func refRandomTalk(r *rand.Rand) refTalk {
	k := refTalk{
		proto: pick(r, egress.TCP, egress.TCP, egress.TCP, egress.UDP, egress.ICMP),
		addr:  pick(r, "93.184.215.14", "93.184.215.15", "93.184.215.16", "10.0.0.1", "10.0.0.1", "10.0.0.2"), port: pick[uint16](r, 443, 443, 80, 22, 53, 5353),
		kind: pick(r, "tls", "tls", "http", "http", "other", "unclear", "silent", "broken-tls", "broken-http", "gone"),
		name: pick(r, "web.example.com", "api.example.com", "evil.example.com"),
	}
	if k.proto == egress.ICMP {
		k.port = 0
	}
	k.pinned = map[string]string{"93.184.215.14": "web.example.com", "93.184.215.15": "api.example.com", "10.0.0.1": "web.example.com"}[k.addr]
	switch k.kind {
	case "tls", "http":
		k.says(k.name)
	case "other":
		k.bytes, k.name = "SSH-2.0-client\r\n", ""
	case "unclear":
		k.bytes, k.name = pick(r, "\r\nGET / HTTP/1.1\r\n\r\n", "get / HTTP/1.1\r\n\r\n", "\x80\x2e\x01\x03\x01", "\x15\x03\x01\x00\x02\x01\x00"), ""
	case "broken-tls":
		k.bytes = refHellos[k.name][:5+r.IntN(200)]
	case "broken-http":
		k.bytes = pick(r, "GET / HTTP/1.1\r\nHost: "+k.name, "GET / HTTP/1.1\nHost: x\n\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
	default:
		k.name = ""
	}
	return k
}

// says has a client of TLS or HTTP ask for name.
func (k *refTalk) says(name string) {
	k.name, k.bytes = name, refHellos[name]
	if k.kind == "http" {
		k.bytes = "GET / HTTP/1.1\r\nHost: " + name + "\r\n\r\n"
	}
}

// TestI16_SessionsAgreeWithTheReference runs random conversations, cut into random pieces, with a reload at any
// point, through sessions and through the reference.
func TestI16_SessionsAgreeWithTheReference(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"web.example.com", "api.example.com", "evil.example.com"} {
		refHellos[name] = clientHello(name)
	}
	names := pins{
		netip.MustParseAddr("93.184.215.14"): {hostname.MustParse("web.example.com")},
		netip.MustParseAddr("93.184.215.15"): {hostname.MustParse("api.example.com")},
		netip.MustParseAddr("10.0.0.1"):      {hostname.MustParse("web.example.com")},
	}
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	const policiesTried, talks = 400, 50
	start, before := time.Now(), refRandomPolicy(r)
	rules := rulesOf(t, before.text())
	for range policiesTried {
		after := refRandomPolicy(r)
		next := rulesOf(t, after.text())
		for range talks {
			k := refRandomTalk(r)
			got, want := refRun(r, names, &k, rules, next, &before, &after)
			if got != want {
				t.Fatalf("seed %d: %v\nfirst policy:\n%s\nsecond:\n%s\ngot %s, want %s", seed, k, before.text(), after.text(), got, want)
			}
		}
		before, rules = after, next
	}
	t.Logf("%d conversations in %v", policiesTried*talks, time.Since(start))
}

// refRun leads one conversation. The policy changes after a random number of steps, or never.
func refRun(r *rand.Rand, names Names, k *refTalk, rules, next *Rules, before, after *refPolicy) (got, want string) {
	reload := r.IntN(8)
	s, step := Open(rules, names, k.proto, guestAddr, netip.AddrPortFrom(netip.MustParseAddr(k.addr), k.port))
	inForce := before
	first, said := "", k.bytes
	read := step.Action == NeedBytes
	for n := 0; step.Action == NeedBytes; n++ {
		if n == reload {
			if ended := s.Revise(next); ended.Action != Continue {
				return "revised: " + ended.Action.String(), "continue"
			}
			inForce = after
		}
		switch {
		case said != "":
			cut := 1 + r.IntN(len(said))
			first, said = first+said[:cut], said[cut:]
			step = s.Data([]byte(first), More)
		case k.kind == "gone":
			step = s.Data([]byte(first), Gone)
		default:
			step = s.Data([]byte(first), Silent)
		}
	}
	if want = before.outcome(k); read {
		want = inForce.read(k)
	}
	got = step.Action.String()
	if step.Action != Dial && step.Action != Inspect || got != want {
		return got, want
	}
	if step.Action == Dial {
		if r.IntN(2) == 0 {
			refused := map[bool]string{true: "refuse", false: "reject"}[read]
			return s.Dialed(errors.New("refused")).Action.String(), refused
		}
		s.Dialed(nil)
	}
	want = "end"
	if after.keeps(k, read, step.Action == Inspect) {
		want = "continue"
	}
	return s.Revise(next).Action.String(), want
}

// keeps reports whether a running flow may go on under p: one that is relayed if p would relay it, one that is
// inspected if p wouldn't deny it. An upstream proxy makes no difference to either.
func (p *refPolicy) keeps(k *refTalk, read, inspected bool) bool {
	direct := *p
	direct.via = false
	now := direct.outcome(k)
	if read {
		now = direct.read(k)
	} else if direct.before(k) == "read" {
		now = "read"
	}
	if inspected {
		return now != "reject" && now != "refuse"
	}
	return now == "dial"
}

// String leaves out what a client says beside its name.
func (k refTalk) String() string {
	return fmt.Sprintf("%v %s:%d pinned %q, %s %q, %d bytes", k.proto, k.addr, k.port, k.pinned, k.kind, k.name, len(k.bytes))
}
