package mcp

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCloneScriptAsksForTheSecret: git gets the variable's value as its password and nothing of it as an argument.
func TestCloneScriptAsksForTheSecret(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git := "#!/bin/sh\necho \"at $(pwd)\"\nfor a; do echo \"arg $a\"; done\nwhile [ $# -gt 0 ]; do case $1 in credential.helper=!*) eval \"h() { ${1#credential.helper=!} \\\"\\$@\\\"; }\"; h get; h store;; esac; shift; done\n"
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(git), 0o755); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", cloneScript, "sh"}, args...)...)
		c.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "TOKEN=placeholder"}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	to := filepath.Join(dir, "new")
	got := run(to, "TOKEN", "--depth", "1", "--", "https://a.example/b", "b")
	if strings.Count(got, "placeholder") != 1 || !strings.Contains(got, "username=x-access-token\npassword=placeholder\n") || !strings.Contains(got, "arg clone\narg --depth\narg 1\narg --\narg https://a.example/b\narg b\n") {
		t.Errorf("with a secret: %s", got)
	}
	if got := run(to, "", "--", "https://a.example/b", "b"); got != "at "+to+"\narg clone\narg --\narg https://a.example/b\narg b\n" {
		t.Errorf("without one: %s", got)
	}
}

// TestSyncScriptCopiesWhatIsNew, once for each change, and leaves out what nobody wants copied. It overwrites no newer file.
func TestSyncScriptCopiesWhatIsNew(t *testing.T) {
	t.Parallel()
	from, to, began := t.TempDir(), filepath.Join(t.TempDir(), "to"), time.Now()
	change := func(path, text string, at time.Time) { // at once, as the script sees it
		t.Helper()
		whole := filepath.Join(t.TempDir(), "whole")
		err := os.WriteFile(whole, []byte(text), 0o644)
		for _, do := range []func() error{
			func() error { return os.Chtimes(whole, at, at) },
			func() error { return os.MkdirAll(filepath.Dir(path), 0o755) },
			func() error { return os.Rename(whole, path) },
		} {
			if err == nil {
				err = do()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) { t.Helper(); change(filepath.Join(from, name), text, began) }
	write("a", "one")
	write("d/b c", "two")
	write("node_modules/x", "no")
	write(".git/x", "no")
	c := exec.CommandContext(t.Context(), "/bin/sh", "-c", syncScript, "sh", from, to)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	guard := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer guard.Stop()
	lines := bufio.NewScanner(out)
	next := func() string { lines.Scan(); return lines.Text() }
	if got := map[string]bool{next(): true, next(): true}; !got["./a"] || !got["./d/b c"] {
		t.Errorf("copied %v", got)
	}
	write("new", "three")
	if got := next(); got != "./new" {
		t.Errorf("then %s", got)
	}
	change(filepath.Join(to, "new"), "newer", began.Add(time.Hour))
	change(filepath.Join(from, "d/b c"), "four", began.Add(time.Hour))
	if got := next(); got != "./d/b c" {
		t.Errorf("after a change %s", got)
	}
	write("last", "five")
	if got := next(); got != "./last" {
		t.Errorf("at last %s", got)
	}
	for name, want := range map[string]string{"a": "one", "d/b c": "four", "new": "newer", "last": "five", "node_modules/x": "", ".git/x": ""} {
		if got, _ := os.ReadFile(filepath.Join(to, name)); string(got) != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}
