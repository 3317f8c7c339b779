package state

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

func TestPortsAreReadAsDockersAre(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"8080:80": "8080:80", "80": "0:80", "8080:80/tcp": "8080:80", "0:80": "0:80",
		"127.0.0.1:8080:80": "127.0.0.1:8080:80", "[::1]:8080:80": "[::1]:8080:80", "127.0.0.2:0:80": "127.0.0.2:0:80", "127.0.0.2::80": "127.0.0.2:0:80",
		"": "", "x": "", "0": "", "8080:0": "", "65536": "", "65536:80": "", "-1:80": "", "80/udp": "0:80/udp", "5353:53/udp": "5353:53/udp", "[::1]:5353:53/udp": "[::1]:5353:53/udp", "80/sctp": "", "80/": "", "8080:": "", ":80": "", "0.0.0.0:8080:80": "0.0.0.0:8080:80", "[::]:8080:80": "[::]:8080:80", "192.168.1.2:8080:80": "192.168.1.2:8080:80",
		"[::ffff:0.0.0.0]:1:2": "", "224.0.0.1:1:2": "", "[::ffff:127.0.0.1]:8080:80": "", "localhost:8080:80": "", "policy.toml": "", "1:2:3:4": "", "80-90:80-90": "",
	} {
		p, err := ParsePort(text)
		if want == "" {
			if !errors.Is(err, ErrPort) {
				t.Errorf("%q is read as %+v, %v", text, p, err)
			}
			continue
		}
		if err != nil || p.String() != want {
			t.Errorf("%q is read as %s, %v; want %s", text, p, err, want)
		}
		if again, err := ParsePort(p.String()); err != nil || again != p {
			t.Errorf("%s is read as %+v, %v", p, again, err)
		}
	}
}

// TestI15_PortsForOthersNeedARule of the policy, and any port one of the floor.
func TestI15_PortsForOthersNeedARule(t *testing.T) {
	t.Parallel()
	none, rule := policies.Default(), policies.Default()
	rule.Ingress.Allow = []policies.IngressRule{{Name: "lan", CIDRs: []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}}}
	for _, c := range []struct {
		port          string
		policy, floor *policies.Policy
		want          string // "" is a good one
	}{
		{"8080:80", none, nil, ""}, {"[::1]:8080:80", none, nil, ""},
		{"0.0.0.0:8080:80", none, nil, "ingress.allow"}, {"[::]:8080:80", none, nil, "ingress.allow"}, {"192.168.1.2:8080:80", none, nil, "ingress.allow"},
		{"0.0.0.0:8080:80", rule, nil, ""}, {"192.168.1.2:8080:80", rule, nil, ""},
		{"8080:80", rule, none, "floor"}, {"8080:80", none, rule, ""}, {"0.0.0.0:8080:80", rule, rule, ""}, {"0.0.0.0:8080:80", none, rule, "lets none connect"},
	} {
		p, err := ParsePort(c.port)
		if err == nil {
			err = CheckPorts([]Port{p}, false, c.policy, c.floor)
		}
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrPort) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.port, err, c.want)
		}
	}
}

// TestI11_PortsAreBounded checks as many ports as docs/ports.md says, and one more; and ports that can't be together.
func TestI11_PortsAreBounded(t *testing.T) {
	t.Parallel()
	ports := func(n int) (all []Port) {
		for i := range n {
			all = append(all, Port{Host: uint16(1000 + i), Guest: 80})
		}
		return all
	}
	at := netip.MustParseAddr("127.0.0.1")
	for what, c := range map[string]struct {
		ports []Port
		noNet bool
		good  bool
	}{
		"64": {ports(64), false, true}, "65": {ports(65), false, false}, "no network": {ports(1), true, false}, "none, and no network": {nil, true, true},
		"no port of the guest": {[]Port{{Host: 1000}}, false, false},
		"one twice":            {[]Port{{Host: 1000, Guest: 80}, {Host: 1000, Guest: 81}}, false, false},
		"one at its address":   {[]Port{{Host: 1000, Guest: 80}, {Host: 1000, Guest: 81, Address: at}}, false, false},
		"one of each protocol": {[]Port{{Host: 1000, Guest: 80}, {Host: 1000, Guest: 80, UDP: true}}, false, true},
		"any, twice":           {[]Port{{Guest: 80}, {Guest: 81}}, false, true},
	} {
		if err := CheckPorts(c.ports, c.noNet, policies.Default(), nil); (err == nil) != c.good || err != nil && !errors.Is(err, ErrPort) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
