package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI15_LinksOnTheWayConfine has files that confine a sandbox behind links: who may write where a link lies, or where a
// directory of the path does, puts another file in the place of the right one.
func TestI15_LinksOnTheWayConfine(t *testing.T) {
	t.Parallel()
	at := layout(t, []string{"real/file", "other/free/"}, map[string]string{
		"proj/file": "../real/file", "dirs/conf": "../real", "a/first": "../b/second", "b/second": "../real/file", "up/in": "../other/free", "dangling/later": "../real/later",
	})
	secret := func(path string) []policies.Secret {
		return []policies.Secret{{Name: "T", From: policies.Source{Kind: policies.FromFile, Value: path}}}
	}
	for _, way := range []struct {
		path         string
		refused, may []string // writable
	}{
		{"proj/file", []string{"proj", "real", "."}, []string{"a", "dirs", "other"}},
		{"dirs/conf/file", []string{"dirs", "real"}, []string{"proj", "b"}},
		{"a/first", []string{"a", "b", "real"}, []string{"proj", "dirs"}},
		{"up/in/../../real/file", []string{"up", "other", "real"}, []string{"proj", "a"}},
		{"dangling/later", []string{"dangling", "real"}, []string{"proj"}},
	} {
		path := at("") + "/" + way.path // with its ".."
		for what, set := range map[string]func(*Config){
			"the policy": func(c *Config) { c.Policy.Path = path }, "its file": func(c *Config) { c.PolicyFile = path },
			"the audit log": func(c *Config) { c.Audit = path }, "the capture": func(c *Config) { c.Pcap = path }, "the learned policy": func(c *Config) { c.Learn = path },
			"an include": func(c *Config) { c.Policy.Included = []string{path} }, "one outside": func(c *Config) { c.Policy.Outside = []string{path} },
			"roots":  func(c *Config) { c.Policy.TLS.ExtraCA = []policies.ExtraCA{{File: path}} },
			"secret": func(c *Config) { c.Policy.Secrets = secret(path) },
			"floor": func(c *Config) {
				c.Floor, c.OperatorDirectories = policies.Default(), true
				c.Floor.Secrets = secret(path)
			},
		} {
			try := func(host string, writable bool) error {
				c := &Config{Policy: policies.Default(), Directories: []Directory{{Host: at(host), Guest: "/w", Writable: writable}}}
				set(c)
				return c.checkDirectories(&Home{dir: "/nosuch/msb"})
			}
			value := what == "secret" || what == "floor"
			for _, host := range way.refused {
				if err := try(host, true); !errors.Is(err, ErrDirectory) {
					t.Errorf("%s at %s: %s is shared writable: %v", what, way.path, host, err)
				}
				shows := value && (host == "real" || host == ".")
				if err := try(host, false); (err != nil) != shows {
					t.Errorf("%s at %s: %s read-only: %v", what, way.path, host, err)
				} else if shows && !strings.Contains(err.Error(), "must not see") {
					t.Errorf("%s at %s: %s read-only: %v", what, way.path, host, err)
				}
			}
			for _, host := range way.may {
				if err := try(host, true); err != nil {
					t.Errorf("%s at %s: %s is refused: %v", what, way.path, host, err)
				}
			}
		}
	}
}
