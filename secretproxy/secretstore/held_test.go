package secretstore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/policies/grants"
)

// held loads a policy with the one secret T and returns it as it was approved.
func held(t *testing.T, dir, from string) policies.Secret {
	t.Helper()
	path := filepath.Join(dir, "p.toml")
	text := "version = 1\n[egress]\ndefault = \"public\"\n[secrets.T]\nhosts = [\"a.example\"]\nin = [\"body\"]\nfrom = " + from + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	_, p, err = grants.Of(p, grants.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Secrets[0]
}

func valueOf(t *testing.T, s policies.Secret) (string, error) {
	t.Helper()
	holders, err := Open(context.Background(), []policies.Secret{s}, time.Now)
	if err != nil {
		return "", err
	}
	defer holders[0].Close()
	return string(holders[0].Value().Reveal()), nil
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// Each command is approved, then a file that it runs is changed. The twin, which holds nothing, runs what stands
// there now: that is the attack.
func TestI15_ChangedProgramsAreNotRun(t *testing.T) {
	for _, from := range []string{
		`"command:./tool"`, `"command:sh ./tool"`, `["command:sh", "-c", ". ./tool"]`, `["command:sh", "-c", "cd ..; ./*/tool"]`, `"command:env -C %t ./tool"`,
	} {
		dir := filepath.Join(t.TempDir(), "tree")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		tool := filepath.Join(dir, "tool")
		writeFile(t, tool, "#!/bin/sh\necho value-approved\n", 0o700)
		s := held(t, dir, strings.ReplaceAll(from, "%t", dir))
		if got, err := valueOf(t, s); got != "value-approved" {
			t.Errorf("%s: as approved: %q, %v", from, got, err)
		}
		writeFile(t, tool, "#!/bin/sh\necho value-of-the-attacker\n", 0o700)
		if got, err := valueOf(t, s); err == nil || !strings.Contains(err.Error(), "approved") {
			t.Errorf("%s: changed: %q, %v", from, got, err)
		}
	}
	// The twin.
	tool := filepath.Join(t.TempDir(), "tool")
	writeFile(t, tool, "#!/bin/sh\necho value-of-the-attacker\n", 0o700)
	free := policies.Secret{Name: "T", From: policies.Source{Kind: policies.FromCommand, Argv: []string{tool}}}
	if got, err := valueOf(t, free); got != "value-of-the-attacker" {
		t.Errorf("the twin: %q, %v", got, err)
	}
}

// A command runs where no relative path and no variable leads to files beside
// the policy.
func TestI15_CommandsIgnoreFilesBesideThePolicy(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "printf"), "#!/bin/sh\necho value-of-the-attacker\n", 0o700)
	t.Setenv("PATH", dir+":.:"+os.Getenv("PATH"))
	t.Setenv("PERL5LIB", filepath.Join(dir, "lib"))
	t.Setenv("KEPT", "/usr/share")
	t.Chdir(dir)
	if got, err := valueOf(t, held(t, dir, `"command:printf value-of-the-system"`)); got != "value-of-the-system" {
		t.Errorf("PATH leads beside the policy: %q, %v", got, err)
	}
	writeFile(t, filepath.Join(dir, "tool"), "#!/bin/sh\necho $(pwd) $KEPT $PERL5LIB $PATH\n", 0o700)
	got, err := valueOf(t, held(t, dir, `"command:./tool"`))
	if !strings.HasPrefix(got, "/ /usr/share /") || strings.Contains(got, dir) || strings.Contains(got, "::") {
		t.Errorf("the command sees %q, %v", got, err)
	}
}

// A file beside the policy that becomes a link is not followed, whichever part of its path it is.
func TestI15_SwappedInLinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, swap := range []string{"sub/token", "sub"} {
		dir, other := t.TempDir(), t.TempDir()
		for _, d := range []string{dir, other} {
			if err := os.Mkdir(filepath.Join(d, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		writeFile(t, filepath.Join(dir, "sub/token"), "value-approved", 0o600)
		writeFile(t, filepath.Join(other, "sub/token"), "value-of-the-host", 0o600)
		s := held(t, dir, `"file:sub/token"`)
		if got, err := valueOf(t, s); got != "value-approved" {
			t.Fatalf("as approved: %q, %v", got, err)
		}
		writeFile(t, filepath.Join(dir, "sub/token"), "value-rotated", 0o600)
		if got, err := valueOf(t, s); got != "value-rotated" {
			t.Errorf("rotated: %q, %v", got, err)
		}
		if err := os.RemoveAll(filepath.Join(dir, swap)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(other, swap), filepath.Join(dir, swap)); err != nil {
			t.Fatal(err)
		}
		if got, err := valueOf(t, s); err == nil {
			t.Errorf("%s is a link now: %q", swap, got)
		}
		s.From.Hold = nil // the twin
		if got, err := valueOf(t, s); got != "value-of-the-host" {
			t.Errorf("the twin: %q, %v", got, err)
		}
	}
}

func TestI15_LaterProgramsAreNotApproved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := held(t, dir, `"command:./tool"`)
	writeFile(t, filepath.Join(dir, "tool"), "#!/bin/sh\necho value-of-the-attacker\n", 0o700)
	if got, err := valueOf(t, s); err == nil {
		t.Errorf("it was approved when nothing was there: %q", got)
	}
}
