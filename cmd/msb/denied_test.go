package main

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// told is what the end of a run says of these denials.
func told(cfg *sandbox.Config, quiet bool, evs ...audit.Event) string {
	var d audit.Denials
	for _, ev := range evs {
		d.Emit(ev)
	}
	var err bytes.Buffer
	s := d.Summary()
	noteDenials(&ui{err: &err, quiet: quiet}, &s, cfg)
	return err.String()
}

func deniedFlow(host, addr, proto, reason string, port uint16) audit.Event {
	ev := audit.Event{Kind: audit.FlowOpen, Action: "deny", Proto: proto, Dst: netip.MustParseAddr(addr), Port: port, Reason: reason}
	if host != "" {
		ev.Names = []string{host}
	}
	return ev
}

func asked(name, reason string) audit.Event {
	return audit.Event{Kind: audit.DNSQuery, Action: "deny", Reason: reason, DNS: &audit.DNSDetail{Name: name}}
}

func unresolved(name, outcome, message string) audit.Event {
	return audit.Event{Kind: audit.DNSQuery, Action: "allow", Message: message, DNS: &audit.DNSDetail{Name: name, Type: "A", Outcome: outcome, Upstream: "system"}}
}

func request(method, path, reason, rule string) audit.Event {
	return audit.Event{Kind: audit.HTTPRequest, Action: "deny", Proto: "tcp", Port: 443, Host: "a.example", Method: method, Path: path, Reason: reason, Rule: rule}
}

func TestDenialsAreSaidWithWhatHelps(t *testing.T) {
	would := deniedFlow("a.example", "93.184.215.14", "tcp", "no_rule", 443)
	would.Action, would.WouldDeny = "allow", true
	denyRule := deniedFlow("gist.example", "93.184.215.14", "tcp", "deny_rule", 443)
	denyRule.Rule = "no gists"
	for _, tt := range []struct {
		name string
		cfg  sandbox.Config
		evs  []audit.Event
		want string
	}{
		{"nothing", sandbox.Config{}, nil, ""},
		{"a name", sandbox.Config{}, []audit.Event{asked("evil.example", "no_rule")},
			"msb: 1 denied: evil.example (no rule)\nmsb: allow with --allow evil.example:443 (instead of 443 the port that it needs: 80 for http); all of them: --audit FILE\n"},
		{"ports", sandbox.Config{Audit: "a.jsonl"}, []audit.Event{deniedFlow("evil.example", "93.184.215.14", "tcp", "no_rule", 22), deniedFlow("", "192.0.43.8", "udp", "port_not_allowed", 123), deniedFlow("", "2606:2800::1", "icmp", "no_rule", 0)},
			"msb: 3 denied: evil.example:22 (no rule), 192.0.43.8:123/udp (port not allowed), 2606:2800::1/icmp (no rule)\nmsb: allow with --allow evil.example:22 --allow 192.0.43.8:123/udp --allow 2606:2800::1/icmp; all of them: a.jsonl\n"},
		{"a private address", sandbox.Config{Name: "web"}, []audit.Event{deniedFlow("", "10.0.0.1", "tcp", "special_address", 80)},
			"msb: 1 denied: 10.0.0.1:80 (special address)\nmsb: allow by making it again with --allow 10.0.0.1:80/tcp+private; all of them: msb events web --denied\n"},
		{"metadata", sandbox.Config{}, []audit.Event{deniedFlow("", "169.254.169.254", "tcp", "metadata_address", 80)},
			"msb: 1 denied: 169.254.169.254:80 (metadata address)\nmsb: a metadata address hands out this machine's own credentials: only a private rule for exactly that address opens it; all of them: --audit FILE\n"},
		{"a deny rule", sandbox.Config{}, []audit.Event{denyRule},
			"msb: 1 denied: gist.example:443 (deny rule \"no gists\")\nmsb: it is open once the policy's deny rule, or --deny, is taken back; all of them: --audit FILE\n"},
		{"report mode", sandbox.Config{}, []audit.Event{would, would},
			"msb: 2 let through that rules would deny: a.example:443 (no rule, 2 times)\nmsb: allow with --allow a.example:443; all of them: --audit FILE\n"},
		{"under a floor", sandbox.Config{Floor: &policies.Policy{}}, []audit.Event{asked("evil.example", "no_rule")},
			"msb: 1 denied: evil.example (no rule)\nmsb: the floor and the policy both have to allow it; all of them: --audit FILE\n"},
		{"many", sandbox.Config{}, []audit.Event{asked("a.example", "no_rule"), asked("b.example", "no_rule"), asked("c.example", "no_rule"), asked("d.example", "no_rule")},
			"msb: 4 denied: a.example (no rule), b.example (no rule), c.example (no rule), and 1 more destination\nmsb: allow with --allow a.example:443 --allow b.example:443 --allow c.example:443 (instead of 443 the port that it needs: 80 for http); all of them: --audit FILE\n"},
		{"of one that stays", sandbox.Config{Name: "web", PolicyFile: "/p.toml", Audit: "a.jsonl"}, []audit.Event{asked("evil.example", "no_rule")},
			"msb: 1 denied: evil.example (no rule)\nmsb: allow with a rule in /p.toml that means the same as --allow evil.example:443 (instead of 443 the port that it needs: 80 for http); all of them: msb events web --denied\n"},
		{"a method", sandbox.Config{}, []audit.Event{request("PUT", "/a/b", "method_not_allowed", "issues"), request("PUT", "/a/b", "method_not_allowed", "issues")},
			"msb: 2 denied: PUT a.example:443/a/b (method not allowed by the rule \"issues\", 2 times)\nmsb: add \"PUT\" to the methods of the rule \"issues\"; all of them: --audit FILE\n"},
		{"a path", sandbox.Config{}, []audit.Event{request("GET", "/c", "path_not_allowed", "issues")},
			"msb: 1 denied: GET a.example:443/c (path not allowed by the rule \"issues\")\nmsb: add \"/c\" to the paths of the rule \"issues\"; all of them: --audit FILE\n"},
		{"a path that would open more", sandbox.Config{}, []audit.Event{request("GET", "/**", "path_not_allowed", "issues")},
			"msb: 1 denied: GET a.example:443\"/**\" (path not allowed by the rule \"issues\")\nmsb: the rule's paths are in the policy; all of them: --audit FILE\n"},
		{"a name that isn't there", sandbox.Config{}, []audit.Event{unresolved("typo.example", "NXDOMAIN", ""), unresolved("typo.example", "NXDOMAIN", "")},
			"msb: 1 allowed name did not resolve: typo.example (there is no such name); the policy is not the reason\n"},
		{"no resolver", sandbox.Config{}, []audit.Event{unresolved("a.example", "SERVFAIL", "no answer from upstream: timeout"), asked("evil.example", "no_rule")},
			"msb: 1 allowed name did not resolve: a.example (no answer from upstream: timeout); the policy is not the reason\nmsb: 1 denied: evil.example (no rule)\nmsb: allow with --allow evil.example:443 (instead of 443 the port that it needs: 80 for http); all of them: --audit FILE\n"},
		{"names of addresses and of services", sandbox.Config{}, []audit.Event{unresolved("1.2.0.192.in-addr.arpa", "NXDOMAIN", "")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := told(&tt.cfg, false, tt.evs...); got != tt.want {
				t.Errorf("got\n%swant\n%s", got, tt.want)
			}
			if got := told(&tt.cfg, true, tt.evs...); got != "" {
				t.Errorf("with -q: %q", got)
			}
		})
	}
}

// TestDenialRemediesOpenWhatWasDenied judges each destination again by the policy that the suggested flag makes.
func TestDenialRemediesOpenWhatWasDenied(t *testing.T) {
	for _, ev := range []audit.Event{
		asked("evil.example", "no_rule"), deniedFlow("evil.example", "93.184.215.14", "tcp", "no_rule", 443), deniedFlow("a_b.example", "93.184.215.14", "tcp", "no_rule", 80),
		deniedFlow("evil.example", "93.184.215.14", "udp", "no_rule", 5000), deniedFlow("", "93.184.215.14", "tcp", "port_not_allowed", 443), deniedFlow("", "2606:2800::1", "tcp", "no_rule", 8443),
		deniedFlow("", "10.1.2.3", "tcp", "special_address", 443), deniedFlow("", "10.1.2.3", "udp", "special_address", 53000), deniedFlow("", "fd00:1::1", "tcp", "special_address", 80),
		deniedFlow("", "10.1.2.3", "icmp", "special_address", 0), deniedFlow("", "93.184.215.14", "icmp", "no_rule", 0),
	} {
		var d audit.Denials
		d.Emit(ev)
		one := d.Summary().List[0]
		flag := allowFlag(&one)
		rule, err := policies.ParseAllowFlag(flag)
		if err != nil {
			t.Errorf("%+v: --allow %q: %v", one, flag, err)
			continue
		}
		to := destination(&one)
		if one.DNS {
			to += ":443"
		}
		target, err := probe.Parse(to)
		if err != nil {
			t.Fatalf("%q: %v", to, err)
		}
		p := policies.Default()
		for open, rules := range map[bool][]policies.Rule{false: nil, true: {rule}} {
			p.Egress.Allow = rules
			a, err := probe.Ask(p, target)
			if err != nil {
				t.Fatal(err)
			}
			if a.Denied() == open {
				t.Errorf("%s with --allow %q (%v): %s", to, flag, open, a.Message)
			}
		}
	}
}

// TestI12_GuestsNamesAreShownNotObeyed has names by which a guest wants a terminal, a reader or a shell to do something.
func TestI12_GuestsNamesAreShownNotObeyed(t *testing.T) {
	for _, host := range []string{
		"\x1b]0;title\x07.example", "a\nmsb: all is well", "$(reboot).example", "`reboot`", "a;reboot", "a b", "-rf", "a'b", "a\"b", "\u202eexample",
		"x (no rule); allow with --allow *:443", "*", "*.example", "", strings.Repeat("a", 5000) + ".example", "fe80::1%$(reboot)", "\xff\xfe", "a\u200b.example",
	} {
		for _, ev := range []audit.Event{
			asked(host, "no_rule"),
			{Kind: audit.HTTPRequest, Action: "deny", Proto: "tcp", Port: 443, Host: host, Reason: "no_rule"},
			{Kind: audit.FlowOpen, Action: "deny", Proto: "tcp", Port: 80, SNI: host, Reason: "special_address"},
			{Kind: audit.FlowOpen, Action: "deny", Proto: "tcp", Port: 80, SNI: "a.example", Reason: "deny_rule", Rule: host},
			request("GET", host, "path_not_allowed", "r"), request(host, "/", "method_not_allowed", "r"),
		} {
			got := told(&sandbox.Config{}, false, ev)
			if strings.Contains(got, "--allow") && !strings.Contains(host, "--allow") || strings.Count(got, "--allow") > 1 {
				t.Errorf("%q is suggested: %s", host, got)
			}
			if n := strings.Count(got, "\n"); n != 2 || len(got) > 1000 {
				t.Errorf("%q: %d lines, %d bytes", host, n, len(got))
			}
			if clean := audit.Printable(strings.ReplaceAll(got, "\n", "")); clean != strings.ReplaceAll(got, "\n", "") {
				t.Errorf("%q reaches the terminal: %q", host, got)
			}
		}
	}
}

// What was denied while a command ran is said at its end, and nothing of before.
func TestExecSaysWhatWasDeniedMeanwhile(t *testing.T) {
	env, path := loggedSandbox(t, "web")
	home, err := sandbox.OpenHome(strings.TrimPrefix(env[0], sandbox.EnvHome+"="))
	if err != nil {
		t.Fatal(err)
	}
	logged(t, path, asked("before.example", "no_rule"))
	for quiet, want := range map[bool]string{
		false: "msb: 1 denied: meanwhile.example (no rule)\nmsb: allow by making it again with --allow meanwhile.example:443 (instead of 443 the port that it needs: 80 for http); all of them: msb events web --denied\n",
		true:  "",
	} {
		var said bytes.Buffer
		code, err := watchDenials(&ui{err: &said, quiet: quiet}, home, "web", func() (int, error) {
			logged(t, path, asked("meanwhile.example", "no_rule"))
			return 7, nil
		})
		if code != 7 || err != nil || said.String() != want {
			t.Errorf("%d, %v, said %q; want %q", code, err, said.String(), want)
		}
	}
	var said bytes.Buffer
	if _, err := watchDenials(&ui{err: &said}, home, "web", func() (int, error) { return 0, nil }); err != nil || said.Len() > 0 {
		t.Errorf("nothing was denied: %v, %q", err, said.String())
	}
}
