package mcp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// trusted reads a floor from a file in dir and approves it.
func trusted(t *testing.T, home *sandbox.Home, dir, text string) Options {
	t.Helper()
	file := filepath.Join(dir, "floor.toml")
	if err := os.WriteFile(file, []byte("version = 1\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	floor, err := sandbox.LoadPolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	set, err := home.Trust().Grants(floor)
	if err == nil {
		err = home.Trust().Approve(file, set)
	}
	if err != nil {
		t.Fatal(err)
	}
	return Options{Home: home, Floor: floor}
}

const twoSecrets = `
[[egress.allow]]
hosts = ["api.example", "git.example"]
[secrets.API_TOKEN]
from = "file:token"
hosts = ["api.example", "git.example"]
in = ["header:Authorization"]
[secrets.GIT_TOKEN]
from = "env:MSB_TEST_UNSET"
hosts = ["git.example"]
in = ["basic"]
`

// TestI15_AllowKeepsUsefulSecrets: a call that narrows the policy leaves the floor's secrets to the hosts that are left.
// One that isn't left isn't needed either: the variable of GIT_TOKEN is not set.
func TestI15_AllowKeepsUsefulSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := serve(t, func(o *Options) {
		*o = trusted(t, o.Home, dir, twoSecrets)
		o.Sandboxes = 9
	})
	const noGit = "secret GIT_TOKEN: not in this sandbox"
	for name, c := range map[string]struct {
		args m
		want string
	}{
		"api":    {m{"allow": []string{"api.example:443"}}, "API_TOKEN@api.example"},
		"policy": {m{"policy": "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\nmethods = [\"GET\"]\n"}, "API_TOKEN@api.example"},
		"none":   {m{"allow": []string{}}, ""},
		"other":  {m{"allow": []string{"pypi.org:443"}}, ""},
		"tls":    {m{"allow": []string{"api.example:443/tls"}}, ""},
		"bypass": {m{"policy": "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\n[tls]\nbypass = [\"api.example\"]\n"}, ""},
	} {
		c.args["name"] = name
		said := p.says(t, false, "sandbox_create", c.args, noGit)
		if strings.Contains(said, "secret API_TOKEN") != (c.want == "") {
			t.Errorf("%s: %s", name, said)
		}
		kept, err := p.opts.Home.Policy(name)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, s := range kept.Secrets {
			got += s.Name + "@" + s.Hosts[0].Display()
		}
		if got != c.want {
			t.Errorf("%s: secrets %q, want %q", name, got, c.want)
		}
		p.says(t, false, "sandbox_stop", m{"sandbox": name, "remove": true})
	}
	p.says(t, true, "sandbox_create", m{"name": "git", "allow": []string{"git.example:443"}}, "MSB_TEST_UNSET is not set")
	p.says(t, true, "sandbox_run", m{"command": "true", "allow": []string{"git.example:443"}}, "MSB_TEST_UNSET is not set")
	p.says(t, false, "sandbox_run", m{"command": "true", "allow": []string{"api.example:443"}})
	if cfg := p.fake.runs[len(p.fake.runs)-1]; len(cfg.Policy.Secrets) != 1 || cfg.Policy.Secrets[0].Name != "API_TOKEN" {
		t.Errorf("sandbox_run has the secrets %+v", cfg.Policy.Secrets)
	}
}

// TestI15_KeptSecretsNeedTheFloorsApproval: a script that gives a secret's value, and that changed since the operator
// approved it, starts no sandbox, whether the call narrows the policy or not. The twin is the same policy as if it were a
// client's own, which nothing holds to the approval.
func TestI15_KeptSecretsNeedTheFloorsApproval(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "get-token")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho a\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	p := serve(t, func(o *Options) {
		*o = trusted(t, o.Home, dir, "[[egress.allow]]\nhosts = [\"api.example\"]\n[secrets.X]\nfrom = \"command:./get-token\"\nhosts = [\"api.example\"]\nin = [\"basic\"]\n")
	})
	narrow := m{"name": "x", "allow": []string{"api.example:443"}}
	p.says(t, false, "sandbox_create", narrow)
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho b\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range []m{{"name": "y"}, {"name": "y", "allow": []string{"api.example:443"}}} {
		p.says(t, true, "sandbox_create", args, "approved again")
	}
	cfg, err := p.opts.config(&machineArgs{Allow: []string{"api.example:443"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.opts.Home.Trust().Admit(cfg.Policy, sandbox.AdmitOptions{Floor: cfg.Floor}); !errors.As(err, new(*sandbox.GrantsError)) {
		t.Errorf("under the floor: %v", err)
	}
	asOwn := *cfg.Policy
	asOwn.Path = ""
	if _, err := p.opts.Home.Trust().Admit(&asOwn, sandbox.AdmitOptions{Floor: cfg.Floor}); err != nil {
		t.Errorf("the twin: %v", err)
	}
}
