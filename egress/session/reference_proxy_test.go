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
)

// What docs/secrets.md says of clients that are told to use a proxy: the name is resolved by the sandbox's resolver, and the
// flow judged as if the client had opened it itself. Its addresses are tried in turn.

// refNames are the pins of the tests of this file, and what the resolver answers.
var refNames = map[string][]string{
	"web.example.com":  {"93.184.215.14", "10.0.0.1"},
	"api.example.com":  {"93.184.215.15"},
	"evil.example.com": {"93.184.215.16", "93.184.215.18"},
}

// refPins are refNames by address, and the address of a line of [hosts].
type refPins struct{}

func (refPins) Pinned(addr netip.Addr) []hostname.Name {
	if n := refPinned(addr.String()); n != "" {
		return []hostname.Name{hostname.MustParse(n)}
	}
	return nil
}

func (refPins) Mapped(addr netip.Addr) (hostname.Name, bool) {
	return hostname.MustParse(refLine), addr.String() == refMapped
}

func refPinned(addr string) string {
	for name, addrs := range refNames {
		if slices.Contains(addrs, addr) {
			return name
		}
	}
	return ""
}

// refRequest is a request to the explicit proxy.
type refRequest struct {
	tunnel bool     // CONNECT
	name   string   // "" for an address
	addrs  []string // in the order in which they are tried
	port   uint16
	kind   string // what the client says in a tunnel, as of refTalk
	said   string // the name that it says there
	bytes  string
}

func refRandomRequest(r *rand.Rand) refRequest {
	k := refRandomTalk(r)
	for k.proto != egress.TCP || k.port == 53 || k.port == 5353 {
		k = refRandomTalk(r)
	}
	q := refRequest{tunnel: r.IntN(3) > 0, port: k.port, kind: k.kind, said: k.name, bytes: k.bytes}
	q.name = pick(r, "", "web.example.com", "web.example.com", "api.example.com", "evil.example.com")
	q.addrs = slices.Clone(refNames[q.name])
	if q.name == "" {
		q.addrs = []string{pick(r, "93.184.215.14", "93.184.215.15", "93.184.215.17", "10.0.0.1", "10.0.0.2")}
	}
	r.Shuffle(len(q.addrs), func(i, j int) { q.addrs[i], q.addrs[j] = q.addrs[j], q.addrs[i] })
	return q
}

func (q *refRequest) head() string {
	host := q.name
	if host == "" {
		host = q.addrs[0]
	}
	host = fmt.Sprintf("%s:%d", host, q.port)
	if q.tunnel {
		return "CONNECT " + host + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	}
	return "GET http://" + host + "/ HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
}

// talk is the flow to one of the addresses, as if the client had opened it itself.
func (q *refRequest) talk(addr string) *refTalk {
	k := &refTalk{proto: egress.TCP, addr: addr, port: q.port, pinned: refPinned(addr), kind: q.kind, name: q.said}
	if !q.tunnel { // it named its host already
		k.kind, k.name = "http", q.name
	}
	return k
}

// step is what is to be done about one address: "" for the next one.
func (p *refPolicy) step(q *refRequest, k *refTalk) string {
	first := p.before(k)
	switch {
	case first == "deny":
		return ""
	case q.tunnel:
		return map[string]string{"relay": "dial", "read": "need bytes", "inspect": "inspect"}[first]
	}
	if p.read(k) == "refuse" {
		return ""
	}
	return "inspect" // each request of plain HTTP is judged
}

// next is the first of the addresses about which something is to be done, and what that is.
func (p *refPolicy) next(q *refRequest, from int) (at int, step string) {
	for i := from; i < len(q.addrs); i++ {
		if step := p.step(q, q.talk(q.addrs[i])); step != "" {
			return i, step
		}
	}
	return len(q.addrs), "refuse"
}

func refSeed() (uint64, *rand.Rand) {
	seed := rand.Uint64()
	return seed, rand.New(rand.NewPCG(seed, 2))
}

// refPairs runs do with policies of random, each followed by another one.
func refPairs(t *testing.T, n int, random func(*rand.Rand) refPolicy, do func(r *rand.Rand, rules, next *Rules, before, after *refPolicy) (what any, got, want string)) {
	t.Helper()
	for _, name := range []string{"web.example.com", "api.example.com", "evil.example.com", refLine} {
		refHellos[name] = clientHello(name)
	}
	seed, r := refSeed()
	start, before := time.Now(), random(r)
	rules := rulesOf(t, before.text())
	const each = 40
	for range n {
		after := random(r)
		next := rulesOf(t, after.text())
		for range each {
			if what, got, want := do(r, rules, next, &before, &after); got != want {
				t.Fatalf("seed %d: %v\nfirst policy:\n%s\nsecond:\n%s\ngot %s, want %s", seed, what, before.text(), after.text(), got, want)
			}
		}
		before, rules = after, next
	}
	t.Logf("%d conversations in %v", n*each, time.Since(start))
}

// TestI16_ProxiedRequestsAgreeWithTheReference: with the policy changed before the request is read, while its name is
// resolved, in its tunnel, or never.
func TestI16_ProxiedRequestsAgreeWithTheReference(t *testing.T) { //nolint:paralleltest // refHellos
	refPairs(t, 120, refRandomPolicy, func(r *rand.Rand, rules, next *Rules, before, after *refPolicy) (what any, got, want string) {
		q := refRandomRequest(r)
		got, want = refProxied(r, &q, rules, next, before, after)
		return q, got, want
	})
}

func refProxied(r *rand.Rand, q *refRequest, rules, next *Rules, before, after *refPolicy) (got, want string) {
	s, step := Open(rules, refPins{}, egress.TCP, guestAddr, netip.AddrPortFrom(gatewayAddr, ProxyPort))
	if step.Action != NeedBytes {
		return step.Action.String(), "need bytes"
	}
	inForce, reload := before, pick(r, "asking", "naming", "tunnel", "never")
	revise := func(now string) string {
		if now != reload {
			return ""
		}
		inForce = after
		return strings.TrimPrefix(s.Revise(next).Action.String(), "continue")
	}
	if ended := revise("asking"); ended != "" {
		return "revised: " + ended, ""
	}
	head := q.head()
	if cut := r.IntN(len(head)); cut > 0 {
		if step = s.Data([]byte(head[:cut]), More); step.Action != NeedBytes {
			return "half a head: " + step.Action.String(), "need bytes"
		}
	}
	step = s.Data([]byte(head), More)
	if q.name != "" {
		if step.Action != NeedNames || step.Name.String() != q.name {
			return step.Action.String() + " " + step.Name.String(), "need names " + q.name
		}
		if ended := revise("naming"); ended != "" {
			return "revised: " + ended, ""
		}
		var addrs []netip.Addr
		var err error
		switch r.IntN(8) {
		case 0:
			err = errors.New("no answer")
		case 1:
			err = &NameError{Reason: egress.ReasonLimit, Err: errors.New("refused")}
		default:
			for _, a := range q.addrs {
				addrs = append(addrs, netip.MustParseAddr(a))
			}
		}
		if step = s.Resolved(addrs, err); err != nil {
			return step.Action.String(), "refuse"
		}
	}
	for at := 0; ; at++ {
		if at, want = inForce.next(q, at); want != step.Action.String() || want == "refuse" {
			return step.Action.String(), want
		}
		k := q.talk(q.addrs[at])
		if dst := s.Judged().Flow.Dst.Addr().String(); dst != k.addr {
			return "an answer about " + dst, k.addr
		}
		switch step.Action {
		case Dial:
			if r.IntN(2) == 0 {
				return s.Dialed(nil).Action.String(), "relay"
			}
			step = s.Dialed(errors.New("refused")) // the next address is tried
			continue
		case NeedBytes:
			if ended := revise("tunnel"); ended != "" {
				return "revised: " + ended, ""
			}
			end := More
			if k.kind == "gone" {
				end = Gone
			}
			for said := 0; step.Action == NeedBytes; {
				if said < len(q.bytes) {
					said += 1 + r.IntN(len(q.bytes)-said)
				} else if end == More {
					end = Silent
				}
				step = s.Data([]byte(q.bytes[:said]), end)
			}
			return step.Action.String(), inForce.read(k)
		default:
			return step.Action.String(), "inspect"
		}
	}
}

// TestI16_WaitingDenialsAgreeWithTheReference: a denial that waits for a person is judged again when the policy changes, and
// answered or forgotten then. No answer opens what is not public.
func TestI16_WaitingDenialsAgreeWithTheReference(t *testing.T) { //nolint:paralleltest // refHellos
	asks := func(rules *Rules) *Rules {
		approvable := *rules
		approvable.Approval = func(*egress.Flow, egress.Verdict) time.Duration { return time.Minute }
		return &approvable
	}
	refPairs(t, 120, refRandomPolicy, func(r *rand.Rand, rules, next *Rules, before, after *refPolicy) (what any, got, want string) {
		k := refRandomTalk(r)
		k.pinned = refPinned(k.addr)
		if before.before(&k) != "deny" || k.special() {
			return k, "", ""
		}
		s, step := Open(asks(rules), refPins{}, k.proto, guestAddr, netip.AddrPortFrom(netip.MustParseAddr(k.addr), k.port))
		if step.Action != Wait {
			return k, step.Action.String(), "wait"
		}
		inForce := before
		if r.IntN(2) == 0 {
			inForce = after
			step = s.Revise(asks(next))
			first := after.before(&k)
			if want = map[string]string{"deny": "continue", "relay": "dial", "read": "need bytes", "inspect": "inspect"}[first]; want != "continue" || step.Action != Continue {
				return k, step.Action.String(), want
			}
		}
		switch allow := r.IntN(3); {
		case allow == 0:
			return k, s.Expire().Action.String(), "reject"
		case allow == 1:
			return k, s.Answer(false).Action.String(), "reject"
		case inForce.via && k.proto == egress.TCP && k.port == 443: // the upstream proxy is asked for the name
			return k, s.Answer(true).Action.String(), "need bytes"
		}
		return k, s.Answer(true).Action.String(), "dial"
	})
}

// refLinePolicy has a line of [hosts], and rules that may be about its name.
func refLinePolicy(r *rand.Rand) refPolicy {
	return refValid(r, func(r *rand.Rand) refPolicy {
		p := refAnyPolicy(r)
		p.line = true
		if r.IntN(2) == 0 { // no rule has the name
			return p
		}
		for range 1 + r.IntN(2) {
			p.rules = append(p.rules, pick(r,
				refRule{host: refLine, protocol: "https", port: 443},
				refRule{host: refLine, protocol: "https", port: 443, get: true},
				refRule{host: refLine, protocol: "tls", port: 443},
				refRule{host: refLine, protocol: "http", port: 80},
				refRule{host: refLine, protocol: "tcp", port: 22},
				refRule{host: refLine, protocol: "tcp", port: 443},
				refRule{host: refLine, protocol: "udp", port: 443},
				refRule{deny: true, host: refLine},
			))
		}
		return p
	})
}

// TestI16_HostsAgreeWithTheReference: a line of [hosts] that no allow rule names opens its ports, beside deny rules, and no
// pings. Where names are a boundary, TLS and HTTP to it are inspected, and what could be either is refused. An allow rule
// with its name takes the place of all that.
func TestI16_HostsAgreeWithTheReference(t *testing.T) { //nolint:paralleltest // refHellos
	refPairs(t, 100, refLinePolicy, func(r *rand.Rand, rules, next *Rules, before, after *refPolicy) (what any, got, want string) {
		k := refRandomTalk(r)
		k.addr, k.pinned = refMapped, refLine
		if (k.kind == "tls" || k.kind == "http") && r.IntN(2) == 0 {
			k.says(refLine)
		}
		got, want = refRun(r, refPins{}, &k, rules, next, before, after)
		return k, got, want
	})
}

// TestI16_HostsLeadToTheirTarget: by no proxy, and another target or none ends what runs.
func TestI16_HostsLeadToTheirTarget(t *testing.T) { //nolint:paralleltest // refHellos
	refPairs(t, 30, refLinePolicy, func(r *rand.Rand, rules, next *Rules, before, _ *refPolicy) (what any, got, want string) {
		k := refRandomTalk(r)
		k.addr, k.pinned = refMapped, refLine
		s, step := Open(rules, refPins{}, k.proto, guestAddr, netip.AddrPortFrom(netip.MustParseAddr(k.addr), k.port))
		if step.Action != Dial && step.Action != Inspect {
			return k, "", ""
		}
		if target := s.Judged().Target.String(); target != "127.0.0.1:5432" || step.Via {
			return k, fmt.Sprint(target, step.Via), "the line's target, by no proxy"
		}
		s.Dialed(nil)
		later := *next
		later.Hosts = pick(r, nil, rulesOf(t, "[hosts]\n\"db.internal\" = \"127.0.0.1:5433\"\n").Hosts)
		return k, s.Revise(&later).Action.String(), "end"
	})
}

// TestI16_NamesAgreeWithTheReference: which names the resolver may look up, docs/policy.md: those of an allow rule by name, all
// under the default "public", and none that a deny rule leaves nothing of.
func TestI16_NamesAgreeWithTheReference(t *testing.T) { //nolint:paralleltest // refHellos
	refPairs(t, 120, refRandomPolicy, func(r *rand.Rand, rules, _ *Rules, before, _ *refPolicy) (what any, got, want string) {
		name := pick(r, "web.example.com", "api.example.com", "evil.example.com", "other.example.com")
		want = "deny"
		for _, rule := range before.rules {
			if !rule.deny && rule.host == name || before.public {
				want = "allow"
			}
		}
		if before.public {
			want = "allow"
		}
		for _, rule := range before.rules {
			if rule.deny && rule.host == name {
				want = "deny"
			}
		}
		got = "deny"
		if rules.Engine.DecideName(hostname.MustParse(name)).Allowed() {
			got = "allow"
		}
		return name, got, want
	})
}
