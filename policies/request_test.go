package policies

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"
)

func parsed(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("f.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestI15_RequestsStayWithinTheFloor asks for hosts under floors.
func TestI15_RequestsStayWithinTheFloor(t *testing.T) {
	t.Parallel()
	const some = "[agent]\nmay_request = [\"*.example.net\", \"api.example.org:8443\"]\n"
	for _, c := range []struct {
		floor, host string
		port        uint16
		methods     []string
		want        string // of the error; "" for none
		beyond      bool
	}{
		{"", "api.github.com", 0, nil, "", false},
		{"", "API.GitHub.com", 443, []string{"GET", "POST"}, "", false},
		{"", "api.github.com", 8443, nil, "may_request of its [agent] does not hold api.github.com:8443", true},
		{"", "*.github.com", 443, nil, "host: ", false},
		{"", "192.0.2.1", 443, nil, "is an address", false},
		{"", "[2001:db8::1]", 443, nil, "is an address", false},
		{"", "api.github.com", 443, []string{"get"}, "upper case", false},
		{"", "api.github.com", 443, []string{"CONNECT"}, "CONNECT is refused", false},
		{"[hosts]\n\"db.example.net\" = \"127.0.0.1:5432\"\n", "db.example.net", 443, nil, "[hosts] maps db.example.net", true},
		{some, "a.example.net", 443, nil, "", false},
		{some, "example.net", 443, nil, "does not hold example.net", true},
		{some, "a.example.net", 8443, nil, "does not hold a.example.net:8443", true},
		{some, "api.example.org", 8443, nil, "", false},
		{some, "api.example.org", 443, nil, "does not hold api.example.org", true},
		{"[agent]\nmay_request = []\n", "api.github.com", 443, nil, "does not hold api.github.com", true},
		{"[agent]\nimages = []\n", "api.github.com", 443, nil, "", false},
	} {
		floor := parsed(t, c.floor)
		r, err := RequestRule(floor, c.host, c.port, c.methods)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrMayNotRequest) != c.beyond {
			t.Errorf("%s:%d %v under %q: %v, want %q", c.host, c.port, c.methods, c.floor, err, c.want)
		}
		if err == nil && (len(r.Hosts) != 1 || r.Hosts[0].Wildcard() || len(r.Ports) != 1 || r.Ports[0].First != cmp.Or(c.port, 443) || r.Ports[0].First != r.Ports[0].Last || r.Protocol != HTTPS || r.Private || len(r.Methods) != len(c.methods)) {
			t.Errorf("%s: %+v", c.host, r)
		}
	}
	if _, err := RequestRule(nil, "api.github.com", 443, nil); err != nil {
		t.Errorf("without a floor: %v", err)
	}
	if _, err := RequestRule(nil, "api.github.com", 8443, nil); !errors.Is(err, ErrMayNotRequest) {
		t.Errorf("without a floor, another port: %v", err)
	}
	methods := make([]string, maxRequestMethods+1)
	for i := range methods {
		methods[i] = "M" + strings.Repeat("X", i)
	}
	if r, err := RequestRule(nil, "api.github.com", 443, methods[:maxRequestMethods]); err != nil || !slices.Equal(r.Methods, methods[:maxRequestMethods]) {
		t.Errorf("the most methods: %+v, %v", r, err)
	}
	if _, err := RequestRule(nil, "api.github.com", 443, methods); err == nil || !strings.Contains(err.Error(), "ask for at most") {
		t.Errorf("one method more: %v", err)
	}
}

// TestI15_EveryFloorBoundsRequests: a floor under a floor refuses what the one above permits, at whatever depth it stands.
// The twin is the same floors without the one that refuses.
func TestI15_EveryFloorBoundsRequests(t *testing.T) {
	t.Parallel()
	const open = "[agent]\nmay_request = [\"*.example.net\"]\n"
	for refuses, want := range map[string]string{
		"[agent]\nmay_request = []\n":                              "may_request of its [agent] does not hold a.example.net",
		"[agent]\nmay_request = [\"b.example.net\"]\n":             "may_request of its [agent] does not hold a.example.net",
		open + "[hosts]\n\"a.example.net\" = \"127.0.0.1:5432\"\n": "[hosts] maps a.example.net",
	} {
		for at := range 3 {
			floors := []*Policy{parsed(t, open), parsed(t, open), parsed(t, open)}
			for i := range 2 {
				floors[i].Floor = floors[i+1]
			}
			if _, err := RequestRule(floors[0], "a.example.net", 443, nil); err != nil {
				t.Errorf("under three that permit it: %v", err)
			}
			below := floors[at].Floor
			*floors[at] = *parsed(t, refuses)
			floors[at].Floor = below
			if _, err := RequestRule(floors[0], "a.example.net", 443, nil); !errors.Is(err, ErrMayNotRequest) || !strings.Contains(err.Error(), want) {
				t.Errorf("floor %d is %q: %v, want %q", at, refuses, err, want)
			}
		}
	}
}

// TestRulesAreAddedToEveryFloor has a rule in a policy under two floors, and what keeps it out.
func TestRulesAreAddedToEveryFloor(t *testing.T) {
	t.Parallel()
	r, err := RequestRule(nil, "api.example.com", 443, []string{"GET"})
	if err != nil {
		t.Fatal(err)
	}
	r.Name = "request 1"
	p, middle, floor := parsed(t, ""), parsed(t, ""), parsed(t, "[[egress.allow]]\nhosts = [\"*.example.com\"]\n")
	middle.Floor, p.Floor = floor, middle
	q, err := WithRule(p, r)
	if err != nil {
		t.Fatal(err)
	}
	for at, n := q, 0; at != nil; at, n = at.Floor, n+1 {
		if rules := at.Egress.Allow; len(rules) == 0 || rules[len(rules)-1].Name != "request 1" {
			t.Errorf("floor %d has %+v", n, rules)
		}
	}
	if len(p.Egress.Allow)+len(middle.Egress.Allow) != 0 || len(floor.Egress.Allow) != 1 {
		t.Error("the policies themselves were changed")
	}
	for text, want := range map[string]string{
		"[[egress.deny]]\nhosts = [\"*.example.com\"]\n":                                         "can never match",
		"[tls]\nbypass = [\"api.example.com\"]\n":                                                "tls.bypass",
		"[tls]\ninspect = \"none\"\n":                                                            "tls.inspect",
		"[[egress.allow]]\nname = \"request 1\"\nhosts = [\"b.example\"]\n":                      "another rule called",
		"[[egress.allow]]\nhosts = [\"b.example\"]\n[[egress.deny]]\nhosts = [\"b2.example\"]\n": "",
	} {
		for _, q := range []*Policy{parsed(t, text), {Floor: parsed(t, text)}} {
			if _, err := WithRule(q, r); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", text, err, want)
			}
		}
	}
}
