package main

import (
	"fmt"
	"strings"
	"testing"
)

// All that is wrong with a file is said in one round and in the order of its lines: wrong keys and values, rules under a
// deny rule, names that are never resolved, secrets of one shape, what a floor forbids.
func TestI12_CheckSaysEverythingInOneRound(t *testing.T) {
	t.Parallel()
	const head, deny = "version = 1\n", "[[egress.deny]]\nname = \"no gists\"\nhosts = [\"gist.github.com\"]\n"
	gists := "[[egress.allow]]\nname = \"gists\"\nhosts = [\"gist.github.com\"]\n"
	printer := "[[egress.allow]]\nname = \"never\"\nhosts = [\"printer.local\"]\n"
	badRule := "[[egress.allow]]\nname = \"bad\"\nhosts = [\"b.example\"]\nport = [443]\nports = [\"x\"]\n"
	secret := "[secrets.A]\nfrom = \"env:A\"\nhosts = [\"nowhere.example\"]\nin = [\"basic\"]\n"
	badSecret := "[secrets.B]\nfrom = \"nosuch:B\"\nhosts = [\"b.example\"]\nin = [\"basic\"]\n"
	mapping := "[hosts]\n\"internal.example\" = \"127.0.0.1:80\"\n"
	limits := "[limits]\ntcp_connection = 3\n"
	floor := write(t, "floor.toml", head+"[[egress.allow]]\nhosts = [\"other.example\"]\n")
	for name, tt := range map[string]struct {
		text string
		say  []string // in this order
		not  string
	}{
		"a key, a rule that a deny rule covers":  {head + deny + gists + limits, []string{`the deny rule "no gists" covers all of it`, "limits.tcp_connection: unknown key"}, ""},
		"a key first":                            {head + "foo = 1\n" + deny + gists, []string{":2:1: foo: unknown key", "covers all of it"}, ""},
		"faults of a rule beside another's":      {head + deny + badRule + gists, []string{`did you mean "ports"`, `"x" is not a port`, "covers all of it"}, ""},
		"a name that is never resolved":          {head + printer + badRule + limits, []string{"is never resolved", `"x" is not a port`, "limits."}, ""},
		"a secret without a rule":                {head + secret + limits, []string{"no rule allows nowhere.example", "limits."}, ""},
		"two secrets":                            {head + secret + badSecret, []string{"no rule allows nowhere.example", "it says no place"}, ""},
		"a secret whose rule may be the bad one": {head + badRule + secret, []string{`"x" is not a port`}, "no rule allows"},
		"what the floor forbids":                 {head + limits + mapping, []string{"limits.tcp_connection", "internal.example"}, ""},
	} {
		file := write(t, "p.toml", tt.text)
		got := msb(t, nil, "policy", "check", "--floor", floor, file)
		if got.code != exitPolicyInvalid || tt.not != "" && strings.Contains(got.err, tt.not) {
			t.Errorf("%s: %+v, want not %q", name, got, tt.not)
		}
		rest := got.err
		for _, say := range tt.say {
			var ok bool
			if _, rest, ok = strings.Cut(rest, say); !ok {
				t.Errorf("%s: want %q in this order in\n%s", name, tt.say, got.err)
				break
			}
		}
		last := 0
		for line := range strings.Lines(got.err) {
			var at int
			if _, place, ok := strings.Cut(line, "p.toml:"); !ok {
				continue
			} else if _, err := fmt.Sscanf(place, "%d:", &at); err == nil && at < last {
				t.Errorf("%s: line %d after line %d:\n%s", name, at, last, got.err)
			} else if err == nil {
				last = at
			}
		}
	}
}
