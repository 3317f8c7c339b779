package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/msb-project/msb/internal/foldname"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

type confiningFile struct{ what, path string }

// confining are the files that say what the sandbox may do, or record what it did.
func (c *Config) confining() []confiningFile {
	all := []confiningFile{
		{"the policy", c.PolicyFile}, {"the audit log", c.Audit}, {"the capture", c.Pcap}, {"the learned policy", c.Learn},
	}
	for _, p := range c.policies() {
		all = append(all, confiningFile{"the policy", p.Path})
		for _, f := range slices.Concat(p.Included, p.Outside) {
			all = append(all, confiningFile{"a file that the policy includes", f})
		}
		for _, ca := range p.TLS.ExtraCA {
			all = append(all, confiningFile{"roots that the policy trusts", ca.File})
		}
	}
	for _, s := range c.secrets() {
		if s.From.Kind == policies.FromFile {
			all = append(all, confiningFile{"the value of the secret " + s.Name, s.From.Value})
		}
	}
	return all
}

// holds reports whether inner is dir or lies in it, by another mount of dir too. Both are real paths.
func holds(dir, inner string) bool { return grants.Within(dir, inner) }

// confines maps paths in a directory to the reason why a change by the guest would change what the sandbox may do, or what
// is run for it on this machine.
func (c *Config) confines(dir string) func(p string) string {
	var within []confiningFile
	for _, f := range c.confining() {
		if f.path == "" {
			continue
		}
		for _, at := range grants.Way(f.path) {
			if rel, err := filepath.Rel(dir, at); err == nil && filepath.IsLocal(rel) && rel != "." {
				within = append(within, confiningFile{f.what, foldname.Path(rel)})
			}
		}
	}
	steers := c.steering(dir)
	return func(p string) string {
		folded := foldname.Path(p)
		for _, f := range within {
			if f.path == folded {
				return "it is " + f.what + ", or on the way to it"
			}
		}
		if steers(p) {
			return "it decides what is run for a secret of the policy"
		}
		return ""
	}
}

// steering finds the paths in a directory that steer a secret's command: whoever changes them, or the directories around
// them, decides what the command does (grants.Steers).
func (c *Config) steering(dir string) func(p string) bool {
	known := map[string]bool{}
	steers := func(at string) bool {
		is, ok := known[at]
		for _, p := range c.policies() {
			for _, s := range p.Secrets {
				is = is || !ok && grants.Steers(at, p, s.From) != ""
			}
		}
		known[at] = is
		return is
	}
	if !steers(dir) {
		return func(string) bool { return false }
	}
	// If the directory itself is one of these, so is every new file in it.
	all := slices.ContainsFunc(append(filepath.SplitList(os.Getenv("PATH")), os.Getenv("HOME")), func(own string) bool { return own != "" && realPath(own) == dir })
	return func(p string) bool {
		for at := filepath.Join(dir, p); at != dir; at = filepath.Dir(at) {
			if all || steers(at) {
				return true
			}
		}
		return false
	}
}
