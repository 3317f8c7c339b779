package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/gateway"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/policies"
)

// explainNames have an address each, so that nothing but the target is pinned to it.
var explainNames = map[string]string{
	"web.example.com": "93.184.215.14", "api.example.com": "93.184.215.15", "other.example.net": "93.184.215.16",
	"in.corp.example": "10.0.0.5", "mapped.internal": "93.184.215.17", "second.internal": "93.184.215.18",
}

// TestI16_ExplainSaysWhatTheGatewayDoes asks `msb policy explain` and a live gateway about random targets under
// random policies, some of them with a floor.
func TestI16_ExplainSaysWhatTheGatewayDoes(t *testing.T) {
	t.Parallel()
	const worlds, targets = 20, 12
	for range worlds {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			x := newExplained(t, r)
			for range targets {
				x.compare(explainTarget(r))
			}
			if t.Failed() {
				t.Logf("policy:\n%s\nfloor:\n%s", x.policy, x.floor)
			}
		})
	}
}

// TestI16_ExplainAgreesOnOddTargets has targets that explain once judged otherwise than the gateway.
func TestI16_ExplainAgreesOnOddTargets(t *testing.T) {
	t.Parallel()
	const hosts = "[hosts]\n\"mapped.internal\" = \"127.0.0.1:5000\"\n"
	rule := func(protocol, ports string) string {
		return "[[egress.allow]]\nname = \"" + protocol + "\"\nhosts = [\"web.example.com\"]\nprotocol = \"" + protocol + "\"\nports = [" + ports + "]\n"
	}
	for name, tt := range map[string]struct{ policy, to, want string }{
		"http on an odd port":           {rule("http", "9000"), "web.example.com:9000", "inspect"},
		"https on a port of http":       {rule("https", "8080") + "methods = [\"GET\"]\n", "web.example.com:8080", "inspect"},
		"both, and http is usual":       {rule("https", "8080") + "methods = [\"GET\"]\n" + rule("http", "8080"), "web.example.com:8080", "inspect"},
		"an announcement":               {rule("udp", "5353"), "web.example.com:5353/udp", "deny"},
		"a ping to a name of [hosts]":   {hosts, "mapped.internal/icmp", "deny"},
		"a datagram to one (twin)":      {hosts, "mapped.internal:9/udp", "allow"},
		"a datagram elsewhere (twin)":   {rule("udp", "5354"), "web.example.com:5354/udp", "allow"},
		"tls on the port of https":      {rule("tls", "443"), "web.example.com:443", "allow"},
		"another protocol on its port":  {rule("http", "443"), "web.example.com:443", "inspect"},
		"nothing allows it, either way": {rule("udp", "443"), "web.example.com:443", "deny"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := startExplained(t, tt.policy, "")
			target, err := probe.Parse(tt.to)
			if err != nil {
				t.Fatal(err)
			}
			if target.Proto == egress.TCP {
				target.Method, target.Path = "GET", "/"
			}
			if got := x.compare(target); got != tt.want {
				t.Errorf("explain says %s, want %s", got, tt.want)
			}
		})
	}
}

// explained is a gateway whose verdicts are compared with those of explain.
type explained struct {
	*gatewaytest.World
	t             *testing.T
	policy, floor string
	under         *policies.Policy // the policy under its floor
	port          uint16
}

func newExplained(t *testing.T, r *rand.Rand) *explained {
	for {
		policy, floor := explainPolicy(r), ""
		if r.IntN(3) == 0 {
			floor = explainPolicy(r)
		}
		if _, err := policies.Parse("test.toml", []byte("version = 1\n"+policy), nil); err != nil {
			continue
		}
		if floor == "" {
			return startExplained(t, policy, "")
		}
		if f, err := policies.Parse("floor.toml", []byte("version = 1\n"+floor), nil); err == nil {
			if _, err := policies.Tighten(f, gatewaytest.Policy(t, policy)); err == nil {
				return startExplained(t, policy, floor)
			}
		}
	}
}

func startExplained(t *testing.T, policy, floor string) *explained {
	t.Helper()
	x := &explained{t: t, policy: policy, floor: floor, under: gatewaytest.Policy(t, policy), port: 20000}
	x.World = gatewaytest.StartWith(t, x.under, func(cfg *gateway.Config) {
		if floor == "" {
			return
		}
		cfg.Floor = gatewaytest.Policy(t, floor)
		tight, err := policies.Tighten(cfg.Floor, x.under)
		if err != nil {
			t.Fatal(err)
		}
		x.under = tight
	})
	for name, addr := range explainNames {
		x.Record(name + ". 300 IN A " + addr)
	}
	return x
}

// compare asks both, and returns what explain says.
func (x *explained) compare(target probe.Target) string {
	x.t.Helper()
	at := target.Addr
	if !target.Name.IsZero() {
		target.Addr, target.Given = netip.MustParseAddr(explainNames[target.Name.String()]), true
		at = netip.Addr{}
		for _, rr := range x.Resolve(target.Name.String(), dns.TypeA).Answer {
			if a, ok := rr.(*dns.A); ok {
				at, _ = netip.AddrFromSlice(a.A.To4())
			}
		}
	}
	a, err := probe.Ask(x.under, target)
	if err != nil {
		x.t.Fatal(err)
	}
	live := "deny"
	if at.IsValid() {
		live = x.try(target, at)
	}
	if a.Action != live {
		x.t.Errorf("%s %s %s: explain says %s (%s), the gateway %s", target, target.Method, target.Path, a.Action, a.Message, live)
	}
	return a.Action
}

// try has the guest do it, in the protocol that is usual on the port, then in the other one.
func (x *explained) try(target probe.Target, at netip.Addr) string {
	usual := target.Port != 80 && target.Port != 8080
	action := x.once(target, at, usual)
	if action == "deny" && target.Proto == egress.TCP {
		action = x.once(target, at, !usual)
	}
	return action
}

// once returns the action that the log has of one attempt.
func (x *explained) once(target probe.Target, at netip.Addr, secure bool) string {
	x.t.Helper()
	flows, requests := len(x.Audit.Events(audit.FlowOpen)), len(x.Audit.Events(audit.HTTPRequest))
	ctx, cancel := context.WithTimeout(x.t.Context(), 60*time.Second)
	defer cancel()
	x.port++
	dst := netip.AddrPortFrom(at, target.Port)
	switch target.Proto {
	case egress.ICMP:
		go func() { _ = x.Guest.Ping(ctx, at, []byte("ping")) }()
	case egress.UDP:
		c, err := x.Guest.ListenUDP(x.port, at)
		if err != nil {
			x.t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.WriteTo([]byte("datagram"), net.UDPAddrFromAddrPort(dst))
	case egress.TCP:
		c, err := x.Guest.DialTCPFrom(ctx, x.port, dst)
		if err != nil {
			break // the log says why
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		x.request(c, target, at, secure)
	}
	action := x.Audit.Wait(x.t, audit.FlowOpen, flows+1)[flows].Action
	if action != egress.Inspect.String() || target.Method == "" {
		return action
	}
	if e := x.Audit.Wait(x.t, audit.HTTPRequest, requests+1)[requests]; e.Action == egress.Deny.String() {
		return e.Action
	}
	return action
}

// request sends one, and waits for whatever comes.
func (x *explained) request(c net.Conn, target probe.Target, at netip.Addr, secure bool) {
	host := target.Name.String()
	if host == "" {
		host = at.String()
	}
	if secure {
		client := tls.Client(c, &tls.Config{ServerName: target.Name.String(), InsecureSkipVerify: true})
		if client.HandshakeContext(x.t.Context()) != nil {
			return
		}
		c = client
	}
	_, _ = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: %s:%d\r\nConnection: close\r\n\r\n", orGET(target.Method), orRoot(target.Path), host, target.Port)
	_, _ = io.Copy(io.Discard, c)
}

func orGET(s string) string {
	if s == "" {
		return "GET"
	}
	return s
}

func orRoot(s string) string {
	if s == "" {
		return "/"
	}
	return s
}

func choose[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func explainTarget(r *rand.Rand) probe.Target {
	to := choose(r, "web.example.com", "web.example.com", "api.example.com", "other.example.net", "in.corp.example", "mapped.internal", "second.internal", "93.184.215.99", "10.0.0.9")
	port := choose(r, 443, 443, 80, 8080, 8443, 9000, 22, 853)
	switch r.IntN(6) {
	case 0:
		to = fmt.Sprintf("%s:%d/udp", to, choose(r, port, 5353, 123))
	case 1:
		to += "/icmp"
	default:
		to = fmt.Sprintf("%s:%d", to, port)
	}
	target, err := probe.Parse(to)
	if err != nil {
		panic(err)
	}
	if target.Proto == egress.TCP && r.IntN(2) == 0 {
		target.Method, target.Path = choose(r, "GET", "POST"), choose(r, "/open/x", "/closed", "/a//b")
	}
	return target
}

func explainPolicy(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString(choose(r, "", "", "[egress]\ndefault = \"public\"\n", "[egress]\nmode = \"report\"\n"))
	for i := range 1 + r.IntN(5) {
		list := choose(r, "allow", "allow", "allow", "deny")
		fmt.Fprintf(&b, "[[egress.%s]]\nname = \"rule %d\"\n", list, i)
		protocol := choose(r, "https", "https", "http", "tls", "tcp", "udp", "icmp", "any")
		where := choose(r, "hosts = [\"web.example.com\"]", "hosts = [\"*.example.com\"]", "hosts = [\"other.example.net\", \"api.example.com\"]",
			"hosts = [\"mapped.internal\"]", "cidrs = [\"93.184.215.0/24\"]")
		if list == "allow" {
			where = choose(r, where, where, where, "hosts = [\"in.corp.example\"]\nwithin = [\"10.0.0.0/24\"]", "cidrs = [\"10.0.0.0/28\"]\nprivate = true")
		}
		b.WriteString(where + "\nprotocol = \"" + protocol + "\"\n")
		if protocol != "icmp" {
			b.WriteString(choose(r, "ports = [443]\n", "ports = [80, 8080]\n", "ports = [443, 8443, 9000]\n", "ports = [\"1-65535\"]\n", "ports = [22]\n", "ports = [853]\n"))
		}
		if strings.HasPrefix(protocol, "http") {
			b.WriteString(choose(r, "", "", "methods = [\"GET\"]\n", "paths = [\"/open/**\"]\n"))
		}
	}
	b.WriteString(choose(r, "", "", "[tls]\ninspect = \"all\"\n", "[tls]\ninspect = \"none\"\n", "[tls]\nbypass = [\"api.example.com\"]\n"))
	b.WriteString(choose(r, "", "[hosts]\n\"mapped.internal\" = \"127.0.0.1:5000\"\n", "[hosts]\n\"mapped.internal\" = \"127.0.0.1\"\n\"second.internal\" = \"builtin:echo\"\n"))
	return b.String()
}
