package grants

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI15_ClientsAreGrants: who may connect to published ports is approved. A range within one that was is no more.
func TestI15_ClientsAreGrants(t *testing.T) {
	t.Parallel()
	of := func(cidr string) Set {
		p, err := policies.Parse("p.toml", []byte("version = 1\n[[ingress.allow]]\ncidrs = [\""+cidr+"\"]\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		set, _, err := Of(p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	approved := of("10.1.0.0/16")
	if got := approved.String(); got != "clients 10.1.0.0/16 to published ports" {
		t.Errorf("it takes %q", got)
	}
	for cidr, more := range map[string]bool{"10.1.0.0/16": false, "10.1.2.0/24": false, "10.0.0.0/8": true, "10.2.0.0/16": true, "0.0.0.0/0": true, "::/0": true} {
		if got := len(of(cidr).Beyond(approved)) > 0; got != more {
			t.Errorf("%s takes more than was approved: %v, want %v", cidr, got, more)
		}
	}
	private, err := policies.Parse("p.toml", []byte("version = 1\n[[egress.allow]]\ncidrs = [\"10.1.2.0/24\"]\nports = [1]\nprivate = true\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if set, _, err := Of(private, Options{}); err != nil || len(set.Beyond(approved)) == 0 {
		t.Errorf("a private range is taken for approved by one of clients: %v, %v", set, err)
	} else if len(of("10.1.2.0/24").Beyond(set)) == 0 {
		t.Error("clients are taken for approved by a private range")
	}
}

// TestI15_GrantsCoverTheirOwnKind: every pair of grants of a set of each kind, of which none covers another, but a range
// one within it.
func TestI15_GrantsCoverTheirOwnKind(t *testing.T) {
	t.Parallel()
	all := Set{
		{Private, "10.0.0.0/8", ""}, {Private, "10.1.0.0/16", ""}, {Private, "10.1.0.0/16", "*.corp.example"}, {Private, "10.1.0.0/16", "a.corp.example"}, {Private, "10.0.0.0/8", "b.example"},
		{Client, "10.0.0.0/8", "published ports"}, {Client, "10.0.0.0/16", "published ports"}, {Client, "10.1.0.0/16", "published ports"}, {Client, "sandbox web", "port 80"}, {Client, "sandbox web", "port 81"},
		{Image, "10.1.0.0/16", ""}, {Include, "10.1.0.0/16", ""}, {Resolver, "10.1.0.0/16", ""}, {Resolver, "10.1.0.0/16", "a.corp.example"},
	}
	covers := map[[2]int]bool{{0, 1}: true, {0, 2}: true, {0, 3}: true, {0, 4}: true, {1, 2}: true, {1, 3}: true, {2, 3}: true, {5, 6}: true, {5, 7}: true}
	for i, o := range all {
		for j, g := range all {
			if got := (Set{o}).Has(g); got != (i == j || covers[[2]int{i, j}]) {
				t.Errorf("%q covers %q: %v", o, g, got)
			}
		}
	}
}

// TestGrantsOfOneThingAreOneLine, and no others.
func TestGrantsOfOneThingAreOneLine(t *testing.T) {
	t.Parallel()
	var s Set
	for _, g := range []Grant{{Secret, "A", "a.example"}, {Secret, "A", "b.example"}, {Secret, "B", "b.example"}, {Resolver, "B", "b.example"}, {Image, "x", ""}, {Image, "y", ""}, {Include, "y", ""}, {Secret, "A", "b.example"}} {
		s.add(g)
	}
	want := "image x\nimage y\ninclude y\nresolver B to b.example\nsecret A to a.example, b.example\nsecret B to b.example"
	if got := s.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestI15_ReloadsTakeNothingMore than what was approved at the start. The twin is what was.
func TestI15_ReloadsTakeNothingMore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reload := func(approved Set, text string) (*policies.Policy, error) {
		path := filepath.Join(dir, "p.toml")
		if err := os.WriteFile(path, []byte("version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := policies.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return Reload(p, approved, Options{})
	}
	const hosts, more = "[hosts]\n\"a.internal\" = \"127.0.0.1:80\"\n", "\"b.internal\" = \"127.0.0.1:81\"\n"
	approved := Set{{Target, "a.internal at 127.0.0.1:80", ""}}
	for _, text := range []string{"", hosts, hosts + "[sandbox]\nimage = \"registry.example/a\"\n"} {
		if p, err := reload(approved, text); err != nil || p == nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, c := range []struct {
		approved Set
		text     string
	}{{nil, hosts}, {approved, hosts + more}} {
		p, err := reload(c.approved, c.text)
		if p != nil || err == nil || !strings.Contains(err.Error(), "msb policy trust "+filepath.Join(dir, "p.toml")) {
			t.Errorf("%s: %v, %v", c.text, p, err)
		}
	}
}

// TestI15_WaysBackAreGrants: each key of [ssh] is approved by itself, and one that is false takes nothing.
func TestI15_WaysBackAreGrants(t *testing.T) {
	t.Parallel()
	of := func(text string) Set {
		p, err := policies.Parse("p.toml", []byte("version = 1\n[ssh]\n"+text), nil)
		if err != nil {
			t.Fatal(err)
		}
		set, _, err := Of(p, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	keys := []string{"agent_forwarding", "reverse_forwarding", "x11_forwarding"}
	for _, key := range keys {
		got := of(key + " = true\n")
		if got.String() != "ssh "+key {
			t.Errorf("it takes %q", got)
		}
		if none := of(key + " = false\n"); len(none) > 0 {
			t.Errorf("%s that is false takes %q", key, none)
		}
		for _, other := range keys {
			if more := len(of(other+" = true\n").Beyond(got)) > 0; more != (other != key) {
				t.Errorf("%s is covered by %s: %t", other, key, !more)
			}
		}
	}
}
