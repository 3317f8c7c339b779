package sandbox

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// layout makes a directory with files, whose text is "#!/bin/sh", and links; a name with / at its end is a directory.
func layout(t *testing.T, files []string, links map[string]string) (at func(string) string) {
	t.Helper()
	top := realPath(t.TempDir())
	at = func(p string) string { return filepath.Join(top, p) }
	for _, f := range files {
		must(t, os.MkdirAll(filepath.Dir(at(f)), 0o755))
		if strings.HasSuffix(f, "/") {
			must(t, os.MkdirAll(at(f), 0o755))
			continue
		}
		must(t, os.WriteFile(at(f), []byte("#!/bin/sh\n"), 0o755))
	}
	for link, to := range links {
		must(t, os.MkdirAll(filepath.Dir(at(link)), 0o755))
		must(t, os.Symlink(to, at(link)))
	}
	return at
}

// TestI15_GuestsChangeNoCommands shares directories by which a guest would choose what the host runs for a secret: the
// program, what it is found by, and what its arguments name. Its twins share the same directory read-only, or another.
// It is not parallel: PATH is the process's.
func TestI15_GuestsChangeNoCommands(t *testing.T) {
	at := layout(t, []string{
		"tools/bin/mytok", "tools/lib/x", "early/", "late/", "bin/plain", "bin/sh-like", "repo/.git/", "repo/pol/p.toml", "repo/pol/in/get.sh", "repo/scripts/get.sh",
		"repo/src/x", "repo/run.sh", "solo/p.toml", "solo/scripts/get.sh", "store/tok", "store2/tok", "mid/", "free/sub/", "venv/bin/interp",
	}, map[string]string{"links/linked": "../store/tok", "two/chain": "../mid/step", "mid/step": "../store2/tok", "bin/inlink": "../links/linked", "viapath": "tools/bin"})
	must(t, os.WriteFile(at("bin/venvtool"), []byte("#!"+at("venv/bin/interp")+"\n"), 0o755))
	path := os.Getenv("PATH")
	for _, tt := range []struct {
		name, policy string
		argv         []string
		path         string // before the process's own
		home         string
		refused, may []string
	}{
		{name: "settings below HOME", argv: []string{at("bin/plain")}, home: "repo/src", refused: []string{"repo", "repo/src"}, may: []string{"repo/scripts", "free"}},
		{name: "HOME by a link", argv: []string{at("bin/plain")}, home: "viapath", refused: []string{"tools", "tools/bin"}, may: []string{"tools/lib"}},
		{name: "by PATH", argv: []string{"mytok", "work"}, path: at("tools/bin"), refused: []string{"tools/bin", "tools"}, may: []string{"tools/lib", "free"}},
		{name: "a directory of PATH before", argv: []string{"mytok"}, path: at("early") + ":" + at("tools/bin"), refused: []string{"early", "tools/bin"}},
		{name: "one behind, for what it starts", argv: []string{"mytok"}, path: at("tools/bin") + ":" + at("late"), refused: []string{"late"}, may: []string{"free"}},
		{name: "one that isn't there yet", argv: []string{"mytok"}, path: at("free/nosuch") + ":" + at("tools/bin"), refused: []string{"free"}, may: []string{"free/sub"}},
		{name: "PATH by a link", argv: []string{"mytok"}, path: at("viapath"), refused: []string{"tools", "tools/bin", "."}, may: []string{"early"}},
		{name: "a link to the program", argv: []string{at("links/linked")}, refused: []string{"links", "store"}, may: []string{"free"}},
		{name: "a link between", argv: []string{at("two/chain")}, refused: []string{"two", "mid", "store2"}, may: []string{"free", "store"}},
		{name: "links of PATH's program", argv: []string{"inlink"}, path: at("bin"), refused: []string{"bin", "links", "store"}, may: []string{"two"}},
		{name: "an interpreter", argv: []string{at("bin/venvtool")}, refused: []string{"venv", "venv/bin"}, may: []string{"free"}},
		{name: "a script in the policy's directory", argv: []string{"sh", "scripts/get.sh"}, policy: "solo/p.toml", refused: []string{"solo/scripts", "solo"}, may: []string{"repo", "free"}},
		{name: "code", argv: []string{"sh", "-c", ". ./scripts/get.sh"}, policy: "solo/p.toml", refused: []string{"solo/scripts"}, may: []string{"repo/scripts"}},
		{name: "code that names nothing", argv: []string{"sh", "-c", "./$(echo scripts)/get.sh"}, policy: "solo/p.toml", refused: []string{"solo/scripts"}},
		{name: "the repository around the policy", argv: []string{"sh", "in/get.sh"}, policy: "repo/pol/p.toml", refused: []string{"repo/src", "repo/scripts", "repo/pol/in", "repo"}, may: []string{"solo"}},
		{name: "code elsewhere", argv: []string{"sh", "-c", "cd " + at("free") + " && sub/x"}, policy: "solo/p.toml", refused: []string{"free", "free/sub"}, may: []string{"repo"}},
		{name: "an argument", argv: []string{at("bin/plain"), "--lib=" + at("tools/lib/x")}, policy: "solo/p.toml", refused: []string{"tools/lib", "tools"}, may: []string{"tools/bin", "solo/scripts"}},
		{name: "an argument that isn't there", argv: []string{at("bin/plain"), at("free/later")}, refused: []string{"free"}, may: []string{"tools"}},
		{name: "an argument by a link", argv: []string{at("bin/plain"), at("two/chain")}, refused: []string{"two", "mid", "store2"}, may: []string{"store"}},
		{name: "plain words", argv: []string{at("bin/plain"), "get.sh"}, policy: "solo/p.toml", refused: []string{"bin"}, may: []string{"solo/scripts", "free", "tools"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("PATH", strings.Trim(tt.path+":"+path, ":"))
			t.Setenv("HOME", at(cmp.Or(tt.home, "nosuch")))
			p := policies.Default()
			if tt.policy != "" {
				p.Path = at(tt.policy)
			}
			p.Secrets = []policies.Secret{{Name: "T", From: policies.Source{Kind: policies.FromCommand, Argv: tt.argv}}}
			try := func(host string, writable bool) error {
				c := &Config{Policy: p, Directories: []Directory{{Host: at(host), Guest: "/w", Writable: writable}}}
				return c.checkDirectories(&Home{dir: "/nosuch/msb"})
			}
			for _, host := range tt.refused {
				if err := try(host, true); !errors.Is(err, ErrDirectory) {
					t.Errorf("%s is shared writable: %v", host, err)
				}
				if err := try(host, false); err != nil {
					t.Errorf("%s is not shared read-only: %v", host, err)
				}
			}
			for _, host := range tt.may {
				if err := try(host, true); err != nil {
					t.Errorf("%s is refused: %v", host, err)
				}
			}
		})
	}
}

// TestI15_CommandsAreCheckedFromAnywhere has the caller in another directory than the policy's.
func TestI15_CommandsAreCheckedFromAnywhere(t *testing.T) {
	at := layout(t, []string{"proj/p.toml", "proj/scripts/get.sh", "else/scripts/get.sh"}, nil)
	p := policies.Default()
	p.Path = at("proj/p.toml")
	p.Secrets = []policies.Secret{{Name: "T", From: policies.Source{Kind: policies.FromCommand, Argv: []string{"sh", "scripts/get.sh"}}}}
	for _, cwd := range []string{"proj", "else", "/"} {
		if cwd != "/" {
			cwd = at(cwd)
		}
		t.Chdir(cwd)
		for host, refused := range map[string]bool{"proj/scripts": true, "else/scripts": false} {
			c := &Config{Policy: p, Directories: []Directory{{Host: at(host), Guest: "/w", Writable: true}}}
			if err := c.checkDirectories(&Home{dir: "/nosuch/msb"}); (err != nil) != refused {
				t.Errorf("%s from %s: %v, want refused %t", host, cwd, err, refused)
			}
		}
	}
}

// checkDirectories says why the directories can't be shared.
func (c *Config) checkDirectories(home *Home) error {
	_, err := c.directories(home)
	return err
}
