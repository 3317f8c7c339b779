package gateway

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI12_HalfWrittenPoliciesAreIgnored writes a file in place whose first half is a policy too, one without its deny rule.
// The test decides when the watcher reads the file: by its own clock it would read, on a slow machine, at other moments.
func TestI12_HalfWrittenPoliciesAreIgnored(t *testing.T) {
	t.Parallel()
	const (
		before = "version = 1\n"
		half   = "version = 1\n[egress]\ndefault = \"public\"\n"
		after  = half + "[[egress.deny]]\nhosts = [\"evil.example\"]\n"
	)
	path := filepath.Join(t.TempDir(), "policy.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	p, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{Sandbox: "test", Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	w := watcher{gateway: g, path: path, sources: []string{path}, inForce: effect(p)}
	w.reload(false)
	inForce := func() string { return string(policies.Encode(g.policy.Load())) }
	old := inForce()
	for range 3 { // each look finds another text
		write(half)
		w.poll()
		write(after)
		w.poll()
		if inForce() != old {
			t.Fatalf("in force while the file is written:\n%s", inForce())
		}
	}
	w.poll()
	if !strings.Contains(inForce(), "evil.example") {
		t.Errorf("in force once the file is no longer written:\n%s", inForce())
	}
}

// TestI12_UnchangedIncludesReloadNothing gives the gateway what a supervisor is given: the policy's text after its includes.
// Taken for a change, each start would read every secret's source twice. The twin is an include more.
func TestI12_UnchangedIncludesReloadNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policy.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("version = 1\ninclude = [\"pypi\"]\n")
	loaded, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := policies.Parse(path, policies.Encode(loaded), nil)
	if err != nil {
		t.Fatal(err)
	}
	g, err := New(Config{Sandbox: "test", Policy: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	old := g.policy.Load()
	w := watcher{gateway: g, path: path, sources: []string{path}, inForce: effect(p)}
	w.reload(false)
	if g.policy.Load() != old {
		t.Error("an unchanged policy was put in force again")
	}
	write("version = 1\ninclude = [\"pypi\", \"npm\"]\n")
	w.reload(false)
	if g.policy.Load() == old {
		t.Error("a changed policy was not put in force")
	}
}
