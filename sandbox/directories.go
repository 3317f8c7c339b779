package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// maxDirectories bounds how many directories one sandbox sees.
const maxDirectories = 16

// noMounts are the guest's own, which a directory would cover.
var noMounts = []string{"/", "/proc", "/sys", "/dev"}

// ResolveDirectories checks the directories of a Config from which several sandboxes are made. It resolves the links in the
// directories' paths once: if a link is changed later, the sandboxes don't start.
func (c *Config) ResolveDirectories(home *Home) (err error) {
	c.Directories, err = c.directories(home)
	c.RealDirectories = err == nil
	return err
}

// realDirectories checks the directories of a sandbox that is made or started, and returns them with their real paths,
// those that others lie in first.
func (c *Config) realDirectories(home *Home) ([]Directory, error) {
	all, err := c.directories(home)
	slices.SortStableFunc(all, func(a, b Directory) int { return strings.Compare(a.Guest, b.Guest) })
	return all, err
}

// directories are in the order in which they are given.
func (c *Config) directories(home *Home) ([]Directory, error) {
	if len(c.Directories) > 0 && c.Floor != nil && !c.OperatorDirectories {
		return nil, fmt.Errorf("%w: under an operator's floor a sandbox gets what the floor names, and a floor can't name directories; leave -v out, or copy with msb cp", ErrDirectory)
	}
	if len(c.Directories) > maxDirectories {
		return nil, fmt.Errorf("%w: %d of them, at most %d may be", ErrDirectory, len(c.Directories), maxDirectories)
	}
	if _, err := hidePatterns(c.Hide); err != nil {
		return nil, err
	}
	all := slices.Clone(c.Directories)
	for i := range all {
		d := &all[i]
		if err := checkDirectory(d); err != nil {
			return nil, err
		}
		// A guest may replace a directory by a link if it lies in another one that the guest can write to.
		if given := c.Directories[i].Host; c.RealDirectories && given != d.Host {
			return nil, fmt.Errorf("%w: %s is or lies behind a link now, which leads to %s, and was none when it was shared; put the directory back, or make the sandbox again with what the guest is to see", ErrDirectory, given, d.Host)
		}
		if slices.ContainsFunc(all[:i], func(o Directory) bool { return o.Guest == d.Guest }) {
			return nil, fmt.Errorf("%w: two of them at %s in the guest", ErrDirectory, d.Guest)
		}
		if err := c.admitDirectory(home, d); err != nil {
			return nil, err
		}
	}
	return all, checkLinksWithin(c.Directories, all)
}

// checkLinksWithin refuses a directory by a link that lies in another one that the guest may write to, and leads out of it:
// a guest of an earlier run may have made the link.
func checkLinksWithin(given, real []Directory) error {
	for i, d := range given {
		way := grants.Way(d.Host)
		for _, o := range real {
			if o.Writable && !holds(o.Host, real[i].Host) && slices.ContainsFunc(way, func(at string) bool { return holds(o.Host, at) }) {
				return fmt.Errorf("%w: a link in %s, where the guest may write, leads from %s to %s; share %[4]s by that name if the guest is to see it", ErrDirectory, o.Host, d.Host, real[i].Host)
			}
		}
	}
	return nil
}

// guestsOwn reports whether a path is in one of the guest's own directories, which nothing may cover.
func guestsOwn(p string) bool {
	if p == "/etc" { // holds resolv.conf, hosts and the roots that the agent writes; directories below it may be covered
		return true
	}
	return slices.ContainsFunc(noMounts, func(own string) bool { return p == own || own != "/" && strings.HasPrefix(p, own+"/") })
}

// checkDirectory checks the guest's path, and resolves the host's.
func checkDirectory(d *Directory) error {
	if !path.IsAbs(d.Guest) || path.Clean(d.Guest) != d.Guest {
		return fmt.Errorf("%w: %q in the guest; write an absolute path, such as /work", ErrDirectory, d.Guest)
	}
	if d.Writable && d.CopyOnWrite {
		return fmt.Errorf("%w at %s: Writable and CopyOnWrite are two ways to let the guest write; leave out one", ErrDirectory, d.Guest)
	}
	if guestsOwn(d.Guest) {
		return fmt.Errorf("%w at %s, which is the guest's own; choose another place, such as /work", ErrDirectory, d.Guest)
	}
	real, err := filepath.EvalSymlinks(d.Host)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s on this machine; make it first", ErrDirectory, d.Host)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() {
		return fmt.Errorf("%w: %s is no directory; share the one that holds it, or copy it: msb run --copy, msb cp", ErrDirectory, d.Host)
	}
	d.Host = real
	return nil
}

// admitDirectory refuses a directory that would give a guest access to what confines it.
func (c *Config) admitDirectory(home *Home, d *Directory) error {
	state := realPath(home.Dir())
	if holds(d.Host, state) || holds(state, d.Host) {
		return fmt.Errorf("%w: %s and msb's own state (%s) lie in one another; share another directory", ErrDirectory, d.Host, state)
	}
	for _, s := range c.secrets() {
		if s.From.Kind != policies.FromFile {
			continue
		}
		if way := grants.Way(s.From.Value); holds(d.Host, way[len(way)-1]) {
			return fmt.Errorf("%w: %s holds the value of the secret %s (%s), which the guest must not see; move the file elsewhere", ErrDirectory, d.Host, s.Name, s.From.Value)
		}
	}
	if !d.Writable {
		return nil
	}
	for _, f := range c.confining() {
		if f.path == "" {
			continue
		}
		// A link on the way is enough: the guest would put another file behind the path, for the next start or reload.
		for _, at := range slices.Backward(grants.Way(f.path)) {
			if holds(d.Host, at) {
				return fmt.Errorf("%w writable: %s holds %s or a link to it (%s), which the guest could change; share it read-only, or move the file elsewhere", ErrDirectory, d.Host, f.what, at)
			}
		}
	}
	for _, p := range c.policies() {
		for _, s := range p.Secrets {
			if path := grants.Steers(d.Host, p, s.From); path != "" {
				return fmt.Errorf("%w writable: by %s the guest could change what is run for the secret %s (%s); share it read-only, or keep programs, and the directories of PATH, outside of it",
					ErrDirectory, d.Host, s.Name, policies.QuoteArgs([]string{path}))
			}
		}
	}
	return nil
}

// policies are the policy and its floor.
func (c *Config) policies() []*policies.Policy {
	if c.Floor == nil {
		return []*policies.Policy{c.Policy}
	}
	return []*policies.Policy{c.Policy, c.Floor}
}

func (c *Config) secrets() (all []policies.Secret) {
	for _, p := range c.policies() {
		all = append(all, p.Secrets...)
	}
	return all
}

// realPath resolves the existing part of a path: a log may be made later.
func realPath(p string) string {
	abs, err := filepath.Abs(p)
	if err != nil {
		return p
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real
	}
	if up := filepath.Dir(abs); up != abs {
		return filepath.Join(realPath(up), filepath.Base(abs))
	}
	return abs
}
