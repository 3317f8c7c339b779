package grants

import (
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
