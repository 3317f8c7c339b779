package main

import (
	"strings"
	"testing"
)

// What a name's ranges mean is the same in every command that speaks of a policy.
func TestI5_CommandsKnowTheRangesOfNames(t *testing.T) {
	t.Parallel()
	const (
		wiki = "version = 1\n[[egress.allow]]\nname = \"wiki\"\nhosts = [\"wiki.corp.example\"]\nwithin = [\"10.8.0.0/16\"]\npaths = [\"/pages/**\"]\n"
		lab  = "[[egress.allow]]\nname = \"lab\"\ncidrs = [\"10.0.0.0/8\"]\nports = [\"1-65535\"]\nprivate = true\n"
		pair = "version = 1\n[[egress.allow]]\nname = \"wiki\"\nhosts = [\"wiki.corp.example\"]\n[[egress.allow]]\nname = \"where\"\ncidrs = [\"10.8.0.0/16\"]\nports = [443]\nprivate = true\n"
	)
	good, beside, old := write(t, "good.toml", wiki), write(t, "beside.toml", wiki+lab), write(t, "old.toml", pair)
	wider := write(t, "wider.toml", strings.Replace(wiki, "10.8.0.0/16", "10.0.0.0/8", 1))
	floor := write(t, "floor.toml", strings.Replace(wiki, "10.8.0.0/16", "10.8.8.0/24", 1))
	to := func(file string, more ...string) []string {
		return append([]string{"policy", "explain", file, "--to", "wiki.corp.example:443"}, more...)
	}
	for _, tt := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"policy", "check", good}, 0, "ok, 1 allow rule, 0 deny rules, 0 secrets"},
		{[]string{"policy", "check", beside}, 0, "warning: " + beside + ":2:1: methods and paths of the rule \"wiki\""},
		{[]string{"policy", "check", old}, exitPolicyInvalid, " within = [\"10.8.0.0/16\"]\n"},
		{[]string{"run", "--policy", old}, exitPolicyInvalid, " within = [\"10.8.0.0/16\"]\n"},
		{[]string{"policy", "check", "--floor", floor, good}, exitPolicyInvalid, "may have addresses in 10.8.0.0/16"},
		{[]string{"policy", "check", "--floor", wider, good}, 0, "ok"},
		{[]string{"policy", "show", good}, 0, "within = [\"10.8.0.0/16\"]"},
		{[]string{"policy", "schema"}, 0, `"within"`},
		{to(good), 0, "inspect wiki.corp.example:443"},
		{to(good, "--method", "PUT", "--path", "/admin"), exitDenied, "path"},
		{to(beside, "--method", "PUT", "--path", "/admin"), exitDenied, "path"},
		{to(good, "--at", "10.9.0.1"), exitDenied, "taken out of answers"},
		{to(beside, "--at", "10.9.0.1"), exitDenied, "taken out of answers"},
		{to(good, "--at", "93.184.215.14"), exitDenied, "other ranges (within)"},
		{[]string{"policy", "diff", good, wider}, exitDiffers, "wiki.corp.example at 10.0.0.0/8"},
		{[]string{"policy", "diff", good, good}, 0, "the same"},
		{[]string{"policy", "trust", "--help"}, 0, "private ranges"},
	} {
		got := msb(t, nil, tt.args...)
		if got.code != tt.code || !strings.Contains(got.out+got.err, tt.say) {
			t.Errorf("%q: exit %d, want %d with %q\n%s%s", tt.args, got.code, tt.code, tt.say, got.out, got.err)
		}
	}
	if got := msb(t, nil, "policy", "check", good); strings.Contains(got.out+got.err, "warning") {
		t.Errorf("a warning without a reason: %s%s", got.out, got.err)
	}
}

// Rules of flags are held to each other and to the file's as rules of a file are.
func TestI5_FlagsAreCheckedTogether(t *testing.T) {
	t.Parallel()
	gists := write(t, "gists.toml", "version = 1\n[[egress.deny]]\nname = \"no gists\"\nhosts = [\"gist.github.com\"]\n")
	name := write(t, "name.toml", "version = 1\n[[egress.allow]]\nname = \"wiki\"\nhosts = [\"wiki.corp.example\"]\n")
	lab := write(t, "lab.toml", "version = 1\n[[egress.allow]]\nname = \"lab\"\ncidrs = [\"10.8.0.0/16\"]\nports = [443]\nprivate = true\n")
	const wiki, where, within = "wiki.corp.example:443", "10.8.0.0/16:443/tcp+private", "--allow wiki.corp.example:443/https+within=10.8.0.0/16"
	for _, tt := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"--allow", wiki, "--allow", where}, exitPolicyInvalid, within},
		{[]string{"--allow", where, "--allow", wiki}, exitPolicyInvalid, within},
		{[]string{"--policy", lab, "--trust", "--allow", wiki}, exitPolicyInvalid, within},
		{[]string{"--policy", name, "--allow", where}, exitPolicyInvalid, "within = [\"10.8.0.0/16\"]"},
		{[]string{"--policy", gists, "--allow", "gist.github.com"}, exitPolicyInvalid, "the deny rule \"no gists\" covers all of it"},
		{[]string{"--allow", wiki + "/https+within=10.8.0.0/16"}, exitImageUnknown, ""},
		{[]string{"--allow", wiki, "--allow", wiki}, exitImageUnknown, ""}, // given twice
	} {
		got := msb(t, nil, append(append([]string{"run"}, tt.args...), "dir:/nosuch", "--", "true")...)
		if got.code != tt.code || !strings.Contains(got.err, tt.say) {
			t.Errorf("%q: %+v, want exit %d and %q", tt.args, got, tt.code, tt.say)
		}
	}
}
