package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// approve approves all that a policy file takes.
func approve(t *testing.T, h *Home, path string) {
	t.Helper()
	set, err := h.Trust().Grants(loaded(t, path))
	must(t, err)
	must(t, h.Trust().Approve(path, set))
}

// TestI15_ApprovalsAreListedAndForgotten, also of a file that is gone. What lies beside them, or under another file's name,
// approves nothing and isn't listed.
func TestI15_ApprovalsAreListedAndForgotten(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	dir := t.TempDir()
	var paths []string
	for i := range 6 { // in an order that is not that of their digests
		path := filepath.Join(dir, fmt.Sprintf("%c.toml", 'f'-i))
		must(t, os.WriteFile(path, []byte(taking), 0o600))
		approve(t, h, path)
		paths = append(paths, path)
	}
	slices.Sort(paths)
	_, first, err := approvalOf(h, paths[0])
	must(t, err)
	text, err := os.ReadFile(first)
	must(t, err)
	at := func(letter string) string {
		return filepath.Join(filepath.Dir(first), strings.Repeat(letter, 64)+".json")
	}
	must(t, os.WriteFile(at("a"), text, 0o600)) // the first one's, in another's place
	must(t, os.WriteFile(at("b"), nil, 0o600))
	must(t, os.Mkdir(at("c"), 0o700))
	must(t, os.Symlink(first, at("d")))
	must(t, os.WriteFile(filepath.Join(filepath.Dir(first), "notes.txt"), text, 0o600))
	listed := func() (files []string) {
		t.Helper()
		all, err := h.Trust().List()
		must(t, err)
		for _, a := range all {
			if len(a.Grants) != 1 || a.Grants[0].Kind != grants.Secret {
				t.Errorf("%s: %v", a.File, a.Grants)
			}
			files = append(files, a.File)
		}
		return files
	}
	if got := listed(); !slices.Equal(got, paths) {
		t.Errorf("listed: %q, want %q", got, paths)
	}
	must(t, os.Remove(paths[1]))
	for _, path := range paths[:2] {
		if set, err := h.Trust().Forget(path); err != nil || len(set) != 1 {
			t.Errorf("forgetting %s: %v, %v", path, set, err)
		}
		if set, err := h.Trust().Forget(path); err != nil || len(set) != 0 {
			t.Errorf("again: %v, %v", set, err)
		}
	}
	if got := listed(); !slices.Equal(got, paths[2:]) {
		t.Errorf("left: %q, want %q", got, paths[2:])
	}
	_, err = h.Trust().Admit(loaded(t, paths[0]), AdmitOptions{})
	lacks(t, err)
	if all, err := newHome(t).Trust().List(); err != nil || len(all) != 0 {
		t.Errorf("of a user who approved nothing: %v, %v", all, err)
	}
}

// TestI15_FloorsAdmitWhatTheyName, once their own grants are approved: a policy under one needs no approval of its own. One
// that was made in code needs none.
func TestI15_FloorsAdmitWhatTheyName(t *testing.T) {
	t.Parallel()
	h, path := aPolicy(t, taking)
	floorPath := filepath.Join(t.TempDir(), "floor.toml")
	must(t, os.WriteFile(floorPath, []byte(taking), 0o600))
	floor := loaded(t, floorPath)
	_, err := h.Trust().Admit(loaded(t, path), AdmitOptions{Floor: floor})
	lacks(t, err)
	approve(t, h, floorPath)
	if _, err := h.Trust().Admit(loaded(t, path), AdmitOptions{Floor: floor}); err != nil {
		t.Errorf("under an approved floor: %v", err)
	}
	inCode, err := policies.Parse("in code", []byte(taking), nil)
	must(t, err)
	if _, err := h.Trust().Admit(loaded(t, path), AdmitOptions{Floor: inCode}); err != nil {
		t.Errorf("under a floor made in code: %v", err)
	}
}

// TestI15_FloorsMeanTheirOwnScripts: a floor that names a command beside it approves no script of that name beside a policy.
// A policy beside the floor runs the floor's, and a command of the system's has no files of either.
func TestI15_FloorsMeanTheirOwnScripts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	put := func(dir, command, script string) string {
		t.Helper()
		must(t, os.MkdirAll(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "get-token"), []byte("#!/bin/sh\n"+script), 0o700))
		path := filepath.Join(dir, "policy.toml")
		must(t, os.WriteFile(path, []byte(strings.Replace(taking, "env:TAKEN", "command:"+command, 1)), 0o600))
		return path
	}
	for _, c := range []struct {
		command string
		own     bool // the command runs files of its policy's directory
	}{{"./get-token", true}, {"sh ./get-token", true}, {"/bin/true", false}} {
		root := t.TempDir()
		floorPath := put(filepath.Join(root, "floor"), c.command, "echo operator\n")
		approve(t, h, floorPath)
		for what, where := range map[string]struct {
			dir, script string
			good        bool
		}{
			"another script":  {filepath.Join(root, "other"), "echo guest\n", !c.own},
			"the same script": {filepath.Join(root, "same"), "echo operator\n", !c.own},
			"the floor's own": {filepath.Join(root, "floor"), "echo operator\n", true},
		} {
			p := loaded(t, put(where.dir, c.command, where.script))
			_, err := h.Trust().Admit(p, AdmitOptions{Floor: loaded(t, floorPath)})
			var missing *GrantsError
			if (err == nil) != where.good || err != nil && !errors.As(err, &missing) {
				t.Errorf("%s, %s: %v", c.command, what, err)
			}
		}
	}
}

// TestI15_FlagsNeedNoApproval: what the user adds on the command line is the user's own. The twin is the same in the file.
func TestI15_FlagsNeedNoApproval(t *testing.T) {
	t.Parallel()
	const (
		allow  = "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nports = [443]\nprivate = true\n"
		target = "[hosts]\n\"a.example\" = \"127.0.0.1:80\"\n"
		secret = "[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.T]\nfrom = \"env:TAKEN\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	)
	for what, c := range map[string]struct {
		text string
		flag func(*policies.Policy)
	}{
		"a rule":   {allow, func(p *policies.Policy) { p.Egress.Allow[0].Pos = policies.Position{} }},
		"a target": {target, func(p *policies.Policy) { p.Hosts[0].Pos = policies.Position{} }},
		"a secret": {secret, func(p *policies.Policy) { p.Secrets[0].Pos = policies.Position{} }},
	} {
		h, path := aPolicy(t, "version = 1\n"+c.text)
		p := loaded(t, path)
		_, err := h.Trust().Admit(p, AdmitOptions{})
		lacks(t, err)
		c.flag(p)
		if _, err := h.Trust().Admit(p, AdmitOptions{}); err != nil {
			t.Errorf("%s of a flag: %v", what, err)
		}
	}
}
