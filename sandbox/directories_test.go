package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI14_DirectoriesThatConfineAreNotShared tries directories by which a guest would get at msb's state, at what
// confines it, or at a secret. Its twin is a directory beside each that may be shared.
func TestI14_DirectoriesThatConfineAreNotShared(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	at := func(p string) string { return filepath.Join(top, p) }
	for _, d := range []string{"state/home/run", "policy/sub", "inc", "logs/deep", "token", "script", "free/inner", "floor/token", "floor/beside", "roots", "pcaps", "learned", "own"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"policy/p.toml", "inc/i.toml", "token/t", "script/s.sh", "free/file", "policy/ca.pem", "floor/f.toml", "floor/token/t", "roots/ca.pem"} {
		if err := os.WriteFile(at(f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"link": "state", "to-inc": "inc", "to-token": "token"} {
		must(t, os.Symlink(at(to), at(link)))
	}
	p := policies.Default()
	p.Path, p.Included = at("policy/p.toml"), []string{at("to-inc/i.toml")}
	p.Secrets = []policies.Secret{
		{Name: "A", From: policies.Source{Kind: policies.FromFile, Value: at("to-token/t")}},
		{Name: "B", From: policies.Source{Kind: policies.FromCommand, Argv: []string{"/bin/sh", at("script/s.sh")}}},
	}
	floor := policies.Default()
	floor.Path = at("floor/f.toml")
	floor.TLS.ExtraCA = []policies.ExtraCA{{File: at("roots/ca.pem")}}
	floor.Secrets = []policies.Secret{{Name: "F", From: policies.Source{Kind: policies.FromFile, Value: at("floor/token/t")}}}
	home := &Home{dir: at("state/home")}
	for _, tt := range []struct {
		host   string
		ro, rw string // words of the refusal; "" is none
		floor  bool
		// operator tells that the floor's author chose the directory.
		operator bool
		guest    string
	}{
		{host: "free"},
		{host: "free/inner"},
		{host: "state", ro: "msb's own state", rw: "msb's own state"},
		{host: "state/home", ro: "msb's own state", rw: "msb's own state"},
		{host: "state/home/run", ro: "msb's own state", rw: "msb's own state"},
		{host: "link", ro: "msb's own state", rw: "msb's own state"},
		{host: "link/home/run", ro: "msb's own state", rw: "msb's own state"},
		{host: ".", ro: "msb's own state", rw: "msb's own state"},
		{host: "token", ro: "the secret A", rw: "the secret A"},
		{host: "policy", rw: "holds the policy"},
		{host: "policy/sub", rw: "run for the secret B"}, // it may run all that is beside the policy
		{host: "inc", rw: "that the policy includes"},
		{host: "logs", rw: "the audit log"},
		{host: "logs/deep", rw: "the audit log"},
		{host: "pcaps", rw: "the capture"},
		{host: "learned", rw: "the learned policy"},
		{host: "own", rw: "holds the policy"},
		{host: "script", rw: "run for the secret B"},
		{host: "nosuch", ro: "there is no", rw: "there is no"},
		{host: "free/file", ro: "is no directory", rw: "is no directory"},
		{host: "free", guest: "/", ro: "the guest's own", rw: "the guest's own"},
		{host: "free", guest: "/dev/shm", ro: "the guest's own", rw: "the guest's own"},
		{host: "free", guest: "work", ro: "absolute path", rw: "absolute path"},
		{host: "free", guest: "/a/../b", ro: "absolute path", rw: "absolute path"},
		{host: "free", floor: true, ro: "floor", rw: "floor"},
		{host: "free", floor: true, operator: true},
		{host: "floor", floor: true, operator: true, ro: "the secret F", rw: "the secret F"},
		{host: "floor/beside", floor: true, operator: true},
		{host: "roots", floor: true, operator: true, rw: "roots that the policy trusts"},
		{host: "roots"},
		{host: "floor/token", floor: true, operator: true, ro: "the secret F", rw: "the secret F"},
		{host: "floor"}, // it is no floor of this one
	} {
		if tt.guest == "" {
			tt.guest = "/work"
		}
		for _, writable := range []bool{false, true} {
			c := &Config{Policy: p, PolicyFile: at("own/later.toml"), Audit: at("logs/deep/audit.jsonl"), Pcap: at("pcaps/p"), Learn: at("learned/l"), Directories: []Directory{{Host: at(tt.host), Guest: tt.guest, Writable: writable}}}
			if tt.floor {
				c.Floor, c.OperatorDirectories = floor, tt.operator
			}
			words := tt.ro
			if writable {
				words = tt.rw
			}
			got, err := c.realDirectories(home)
			if words == "" && (err != nil || len(got) != 1) || words != "" && (!errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), words)) {
				t.Errorf("%s at %s, writable %t: %v, want %q", tt.host, tt.guest, writable, err, words)
			}
		}
	}
	c := &Config{Policy: p, Directories: []Directory{{Host: at("free"), Guest: "/a/b"}, {Host: at("inc"), Guest: "/a"}}}
	if got, err := c.realDirectories(home); err != nil || got[0].Guest != "/a" {
		t.Errorf("mounted in the order of %v, %v", got, err)
	}
	c.Directories[1].Guest = "/a/b"
	if _, err := c.realDirectories(home); !errors.Is(err, ErrDirectory) {
		t.Errorf("two at one place: %v", err)
	}
	c.Directories = make([]Directory, maxDirectories+1)
	if _, err := c.realDirectories(home); !errors.Is(err, ErrDirectory) {
		t.Errorf("too many: %v", err)
	}
}

// TestI14_DirectoriesHaveTheirPlaces in the guest: each differs in one thing from what is taken.
func TestI14_DirectoriesHaveTheirPlaces(t *testing.T) {
	t.Parallel()
	host, home := t.TempDir(), &Home{dir: "/nosuch/msb"}
	at := func(n int) (all []Directory) {
		for i := range n {
			all = append(all, Directory{Host: host, Guest: fmt.Sprint("/d", i)})
		}
		return all
	}
	for what, c := range map[string]struct {
		cfg   Config
		taken bool
	}{
		"as many as there may be": {Config{Directories: at(maxDirectories)}, true},
		"one more":                {Config{Directories: at(maxDirectories + 1)}, false},
		"over /etc":               {Config{Directories: []Directory{{Host: host, Guest: "/etc"}}}, false},
		"below /etc":              {Config{Directories: []Directory{{Host: host, Guest: "/etc/app"}}}, true},
		"beside /dev":             {Config{Directories: []Directory{{Host: host, Guest: "/devel"}}}, true},
		"written to in two ways":  {Config{Directories: []Directory{{Host: host, Guest: "/d", Writable: true, CopyOnWrite: true}}}, false},
	} {
		c.cfg.Policy = policies.Default()
		if err := c.cfg.checkDirectories(home); (err == nil) != c.taken || err != nil && !errors.Is(err, ErrDirectory) {
			t.Errorf("%s: %v, want taken %t", what, err, c.taken)
		}
	}
}

// TestI14_ResolvedDirectoriesStayWhatTheyWere: the Config is checked again for each sandbox that is made from it. A relative
// path is one from where it was resolved. Not parallel: it changes the working directory.
func TestI14_ResolvedDirectoriesStayWhatTheyWere(t *testing.T) {
	at := layout(t, []string{"work/b/", "work/a/", "other/"}, nil)
	t.Chdir(at("work"))
	home := &Home{dir: "/nosuch/msb"}
	c := &Config{Policy: policies.Default(), Directories: []Directory{{Host: "b", Guest: "/2"}, {Host: "a", Guest: "/1"}}}
	must(t, c.ResolveDirectories(home))
	if c.Directories[0].Host != at("work/b") || c.Directories[1].Host != at("work/a") {
		t.Errorf("%+v", c.Directories)
	}
	t.Chdir(at("other"))
	must(t, c.checkDirectories(home))
	must(t, os.Remove(at("work/b")))
	must(t, os.Symlink(at("other"), at("work/b")))
	if err := c.checkDirectories(home); !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), "link") {
		t.Errorf("one that is a link now: %v", err)
	}
}
