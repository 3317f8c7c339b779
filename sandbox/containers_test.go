package sandbox

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI8_ContainersGetPlaceholders: none has a value under a secret's name that somebody put into its environment.
func TestI8_ContainersGetPlaceholders(t *testing.T) {
	t.Parallel()
	env := []string{"PATH=/bin", "TOKEN=the value itself", "TOKENS=another", "TOKEN=twice"}
	got := withPlaceholders(env, map[string]string{"TOKEN": "msb_1", "B": "msb_2"})
	if want := []string{"PATH=/bin", "TOKENS=another", "B=msb_2", "TOKEN=msb_1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !slices.Equal(withPlaceholders(env, nil), env) || env[1] != "TOKEN=the value itself" {
		t.Error("an environment without secrets, or the caller's own, was changed")
	}
}

// TestI14_ContainersSeeNothingThatConfines: a container gets no directory with a secret's value, and none writable with what says what
// it may do. The twin is the same directory of a sandbox that nothing there confines, and the one beside it.
func TestI14_ContainersSeeNothingThatConfines(t *testing.T) {
	t.Parallel()
	at := layout(t, []string{"secrets/token", "etc/floor.toml", "log/audit.jsonl", "data/x", "state/"}, nil)
	secret := policies.Default()
	secret.Secrets = []policies.Secret{{Name: "T", From: policies.Source{Kind: policies.FromFile, Value: at("secrets/token")}}}
	floor := policies.Default()
	floor.Path = at("etc/floor.toml")
	confined := &Config{Policy: secret, Floor: floor, Audit: at("log/audit.jsonl")}
	for _, tt := range []struct {
		path           string
		read, writable bool // may be
	}{
		{"secrets", false, false},
		{"secrets/token", false, false},
		{"etc", true, false},
		{"etc/floor.toml", true, false},
		{"log", true, false},
		{"state", false, false},
		{".", false, false},
		{"data", true, true},
		{"data/x", true, true},
	} {
		for writable, may := range map[bool]bool{false: tt.read, true: tt.writable} {
			c := &Containers{&Sandbox{home: &Home{dir: at("state")}, confined: confined}}
			if _, err := c.admit(filepath.Clean(at(tt.path)), writable); (err == nil) != may {
				t.Errorf("%s, writable %t: %v, want admitted %t", tt.path, writable, err, may)
			}
			c.s = &Sandbox{home: &Home{dir: "/nosuch/msb"}}
			if _, err := c.admit(filepath.Clean(at(tt.path)), writable); err != nil {
				t.Errorf("%s, writable %t, of a sandbox that nothing there confines: %v", tt.path, writable, err)
			}
		}
	}
}
