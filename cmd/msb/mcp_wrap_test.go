package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestI17_WrapShowsTheCommandItself: a shell reads the command for Claude Code as the words of the entry, whatever they hold.
func TestI17_WrapShowsTheCommandItself(t *testing.T) {
	t.Parallel()
	argv := []string{"sh", "-c", "echo one\necho 'two' \\n 2", "x\x1b]0;t\a1", "\u009b2J\u202eé'", "$(id) `id`", "plain é", ""}
	printed := finish(t, command(t, []string{sandbox.EnvHome + "=" + t.TempDir()}, append([]string{"mcp", "wrap", "s", "--"}, argv...)...))
	_, line, ok := strings.Cut(printed.err, "for Claude Code: claude ")
	if !ok || printed.code != 0 {
		t.Fatalf("%+v", printed)
	}
	line, _, _ = strings.Cut(line, "\n")
	got, err := exec.CommandContext(t.Context(), "bash", "-c", "printf '%s\\0' "+line).Output()
	words := strings.Split(strings.TrimSuffix(string(got), "\x00"), "\x00")
	if err != nil || len(words) < len(argv) || !slices.Equal(words[len(words)-len(argv):], argv) {
		t.Errorf("%v: bash reads %q from %s", err, words, line)
	}
}

// TestWrapPrintsWhatRunTakes: the entry holds the flags as they were given, and paths for any working directory.
func TestWrapPrintsWhatRunTakes(t *testing.T) {
	t.Parallel()
	home, work := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "p.toml"), []byte("version = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, []string{sandbox.EnvHome + "=" + home}, "mcp", "wrap", "--image", "dir:img", "--policy", "p.toml", "--allow", "api.example.com:443",
		"--secret", "KEY=env:KEY@api.example.com", "-v", ".:/work:rw", "-v", "data:/data", "-m", "1G", "a_server-1", "--", "npx", "-y", "it's <one>", "--flag")
	cmd.Dir = work
	got := finish(t, cmd)
	for _, says := range []string{"for Claude Code: claude mcp add --transport stdio --env MSB_HOME=" + home + " ", " a_server-1 -- /", `'it'\''s <one>' --flag`} {
		if got.code != 0 || !strings.Contains(got.err, says) {
			t.Errorf("%+v; want %q", got, says)
		}
	}
	var file map[string]map[string]wrappedServer
	if err := json.Unmarshal([]byte(got.out), &file); err != nil || !strings.Contains(got.out, "<one>") {
		t.Fatalf("%v: %s", err, got.out)
	}
	if got := finish(t, command(t, []string{sandbox.EnvHome + "=" + home}, "mcp", "wrap", "--image", "node:22", "s", "--", "npx")); !strings.Contains(got.err, "msb image pull node:22") {
		t.Errorf("%+v", got)
	}
	if got := finish(t, command(t, []string{sandbox.EnvHome + "=" + home}, "mcp", "wrap", strings.Repeat("a", 64), "--", "npx")); got.code != 0 {
		t.Errorf("the longest name: %+v", got)
	}
	for image, warned := range map[string]bool{"": true, "builtin": true, "dir:img": false} {
		got := finish(t, command(t, []string{sandbox.EnvHome + "=" + home}, "mcp", "wrap", "--image="+image, "s", "--", "npx"))
		if got.code != 0 || strings.Contains(got.err, "built-in image") != warned {
			t.Errorf("--image=%s: %+v", image, got)
		}
	}
	printed := finish(t, command(t, []string{sandbox.EnvHome + "=" + home}, "mcp", "wrap", "s", "--", "npx", "\u009b2J\u202e\x1b"))
	var words map[string]map[string]wrappedServer
	if err := json.Unmarshal([]byte(printed.out), &words); err != nil || strings.ContainsAny(printed.out+printed.err, "\u009b\u202e\x1b") || !slices.Contains(words["mcpServers"]["s"].Args, "\u009b2J\u202e\x1b") {
		t.Errorf("what a terminal acts on: %v, %+v", err, printed)
	}
	entry := file["mcpServers"]["a_server-1"]
	want := []string{
		"run", "-i", "--policy=" + work + "/p.toml", "--allow=api.example.com:443", "--secret=KEY=env:KEY@api.example.com",
		"--volume=" + work + ":/work:rw", "--volume=data:/data", "--memory=1G", "dir:" + work + "/img", "--", "npx", "-y", "it's <one>", "--flag",
	}
	if !slices.Equal(entry.Args, want) || !filepath.IsAbs(entry.Command) || entry.Env[sandbox.EnvHome] != home {
		t.Errorf("%q, want %q", entry, want)
	}
}

func TestWrapRefusesWhatWouldNotStart(t *testing.T) {
	t.Parallel()
	takes := write(t, "takes.toml", "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.A]\nfrom = \"env:A\"\nhosts = [\"a.example\"]\nin = [\"header:Authorization\"]\n")
	bad := write(t, "bad.toml", "version = 1\nx = 1\n")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{125, "name the server", []string{"server", "npx"}},
		{125, "name the server", []string{"server", "other", "--", "npx"}},
		{125, "name the server", []string{"server", "--"}},
		{125, "can't be the name of a server", []string{"a b", "--", "npx"}},
		{125, "can't be the name of a server", []string{"", "--", "npx"}},
		{125, "can't be the name of a server", []string{"a.b", "--", "npx"}},
		{125, "can't be the name of a server", []string{strings.Repeat("a", 65), "--", "npx"}},
		{125, "--trust", []string{"--trust", "s", "--", "npx"}},
		{125, "give --name too", []string{"--label", "a=b", "s", "--", "npx"}},
		{125, "give -d too", []string{"--restart", "always", "s", "--", "npx"}},
		{125, "--memory", []string{"--memory", "12", "s", "--", "npx"}},
		{exitPolicyInvalid, "bad.toml:2", []string{"--policy", bad, "s", "--", "npx"}},
		{exitPolicyInvalid, "msb policy trust", []string{"--policy", takes, "s", "--", "npx"}},
		{125, "file:", []string{"--secret", "A=file:a@a.example", "s", "--", "npx"}},
		{125, "no UTF-8", []string{"s", "--", "np\xffx"}},
		{125, "no UTF-8", []string{"-e", "A=\xff", "s", "--", "npx"}},
		{112, "image", []string{"--image", "UPPER/x", "s", "--", "npx"}},
	} {
		got := finish(t, command(t, []string{sandbox.EnvHome + "=" + t.TempDir()}, append([]string{"mcp", "wrap"}, c.args...)...))
		if got.code != c.code || !strings.Contains(got.err, c.says) || got.out != "" {
			t.Errorf("%q: %+v; want %d, %q", c.args, got, c.code, c.says)
		}
	}
}
