package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestInstalledEntriesHoldTheFlags(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME="}
	floor := write(t, "floor.toml", policyText)
	file := filepath.Join(home, ".cursor", "mcp.json")
	share := t.TempDir()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}

	if r := msb(t, env, "mcp", "install", "cursor", "--print"); r.code != 0 || !strings.Contains(r.err, file) || !json.Valid([]byte(r.out)) {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("--print wrote the file")
	}
	r := msb(t, env, "mcp", "install", "cursor", "--policy", floor, "--image", "a:1", "--image", "b:2", "--max-cpus", "3", "-v", ".:/work:rw", "-v", share+":/data")
	if r.code != 0 || !strings.Contains(r.out, "Cursor") {
		t.Fatalf("%+v", r)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		MCPServers map[string]struct {
			Command string
			Args    []string
		}
	}
	want := []string{"mcp", "--image=a:1", "--image=b:2", "--max-cpus=3", "--policy=" + floor, "--volume=" + here + ":/work:rw", "--volume=" + share + ":/data"}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	// The state directory in which the policy is approved goes along: the client's environment may have another.
	entry := got.MCPServers["msb"]
	if a := entry.Args; entry.Command != "env" || len(a) < 2 || !strings.HasPrefix(a[0], "MSB_HOME=/") || !filepath.IsAbs(a[1]) || !slices.Equal(a[2:], want) {
		t.Errorf("%s; want args %q", text, want)
	}
	r = msb(t, append(env, "MSB_HOME="), "mcp", "install", "gemini", "--max-cpus", "3")
	if text, err = os.ReadFile(filepath.Join(home, ".gemini", "settings.json")); r.code != 0 || err != nil || json.Unmarshal(text, &got) != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	if entry := got.MCPServers["msb"]; !filepath.IsAbs(entry.Command) || !slices.Equal(entry.Args, []string{"mcp", "--max-cpus=3"}) {
		t.Errorf("without MSB_HOME: %s", text)
	}
	if r := msb(t, env, "mcp", "install", "cursor", "--policy", floor, "--image", "a:1", "--image", "b:2", "--max-cpus", "3", "-v", ".:/work:rw", "-v", share+":/data"); !strings.Contains(r.out, "nothing to change") {
		t.Errorf("a second time: %+v", r)
	}
	if r := msb(t, env, "mcp", "uninstall", "cursor", "--print"); r.code != 0 || r.out != "" || !strings.Contains(r.err, file+" goes") {
		t.Errorf("%+v", r)
	}
	if r := msb(t, env, "mcp", "uninstall", "cursor"); r.code != 0 || !strings.Contains(r.out, "To take effect: restart it.") {
		t.Errorf("%+v", r)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	if err := os.WriteFile(filepath.Join(home, ".claude.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"install", "uninstall"} {
		if r := msb(t, env, "mcp", c, "claude-code"); r.code != 0 || !strings.Contains(r.out, "To take effect: start a new session") {
			t.Errorf("%+v", r)
		}
	}
}

func TestI12_BrokenServersAreNotInstalled(t *testing.T) {
	home := t.TempDir()
	asks := write(t, "asks.toml", "version = 1\n[hosts]\n\"internal.example\" = \"127.0.0.1:80\"\n")
	for _, c := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"install", "nope"}, exitOther, "claude-code, claude-desktop"},
		{[]string{"install"}, exitOther, "name the client"},
		{[]string{"install", "cursor", "zed"}, exitOther, "one at a time"},
		{[]string{"instal", "cursor"}, exitOther, "did you mean install?"},
		{[]string{"install", "windsurf", "--scope", "project"}, exitOther, "use the scope user"},
		{[]string{"install", "cursor", "--scope", "all"}, exitOther, "write user or project"},
		{[]string{"install", "cursor", "--policy", "nosuch.toml"}, exitPolicyMissing, "nosuch.toml"},
		{[]string{"install", "cursor", "--policy", asks}, exitPolicyInvalid, "msb policy trust"},
		{[]string{"install", "cursor", "-v", "nosuch-directory/x:/work"}, exitOther, "make it first"},
		{[]string{"install", "cursor", "-v", "web:/work"}, exitOther, "./web"},
		{[]string{"install", "cursor", "--image", "Python:3"}, exitImageUnknown, `did you mean "python:3"?`},
		{[]string{"install", "cursor", "--tools", "file"}, exitOther, "files, images, jobs, manage"},
		{[]string{"install", "cursor", "--max-memory", "x"}, exitOther, "such as 2G"},
		{[]string{"install", "cursor", "--vm", "hyperv"}, exitNoBackend, `"hyperv" is not one of auto`},
	} {
		r := msb(t, []string{"HOME=" + home, "XDG_CONFIG_HOME="}, append([]string{"mcp"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.say) {
			t.Errorf("%q: %+v; want %d and %q", c.args, r, c.code, c.say)
		}
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("written: %v, %v", left, err)
	}
}

// TestInstallWarnsOfMissingPrograms: a name that isn't in PATH, and a path in npx's cache.
func TestInstallWarnsOfMissingPrograms(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for dir, warned := range map[string]bool{"bin": false, "empty": true, "x/_npx/1/bin": true} {
		bin := filepath.Join(home, dir)
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(bin, "msb")
		if dir != "empty" {
			if err := os.Link(self, program); err != nil && os.Symlink(self, program) != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), self, "mcp", "install", "cursor", "--scope", "project")
		cmd.Dir, cmd.Env = project, []string{asMSB + "=1", "HOME=" + home, "PATH=" + bin}
		if r := finish(t, cmd); r.code != 0 || strings.Contains(r.err, "warning: no msb is in your PATH") != warned {
			t.Errorf("%s: %+v; want a warning: %v", dir, r, warned)
		}
	}
	if !inNPXCache("/home/u/.npm/_npx/0a1b/node_modules/@msb-project/msb/bin/msb") || inNPXCache("/usr/local/bin/msb") {
		t.Error("which path is npx's")
	}
}

// TestDocumentedFloorIsInstalled: the example of docs/mcp.md passes msb policy check, and a server starts with it.
func TestDocumentedFloorIsInstalled(t *testing.T) {
	page, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile("(?s)```toml\n(version = 1\n.*?)```").FindSubmatch(page)
	if text == nil {
		t.Fatal("docs/mcp.md has no policy")
	}
	floor := write(t, "floor.toml", string(text[1]))
	if err := os.Mkdir(filepath.Join(filepath.Dir(floor), "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + t.TempDir(), "MSB_HOME=" + filepath.Join(t.TempDir(), "state")}
	for _, args := range [][]string{{"policy", "check", floor}, {"policy", "trust", floor}, {"mcp", "install", "claude-code", "--policy", floor}} {
		if r := msb(t, env, args...); r.code != 0 {
			t.Errorf("%q: %+v", args, r)
		}
	}
}

// TestInstallWarnsOfWhatFailsLater: secrets whose variable is not set, and more memory than any machine has. The twins have
// both.
func TestInstallWarnsOfWhatFailsLater(t *testing.T) {
	floor := write(t, "floor.toml", "version = 1\n[[egress.allow]]\nhosts = [\"api.example\"]\n[secrets.API_TOKEN]\nfrom = \"env:MSB_TEST_TOKEN\"\nhosts = [\"api.example\"]\nin = [\"header:Authorization\"]\n")
	env := []string{"HOME=" + t.TempDir(), "XDG_CONFIG_HOME=", "MSB_HOME=" + filepath.Join(t.TempDir(), "state")}
	if r := msb(t, env, "policy", "trust", floor); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, c := range []struct {
		env, args []string
		warning   string
	}{
		{nil, []string{"--policy", floor}, "the variable MSB_TEST_TOKEN is not set here"},
		{[]string{"MSB_TEST_TOKEN=a-long-enough-value"}, []string{"--policy", floor}, ""},
		{nil, []string{"--max-memory", "900T"}, "this machine has"},
		{nil, nil, ""},
	} {
		r := msb(t, append(slices.Clone(env), c.env...), append([]string{"mcp", "install", "cursor", "--print"}, c.args...)...)
		if r.code != 0 || strings.Contains(r.err, "warning:") != (c.warning != "") || !strings.Contains(r.err, c.warning) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
}

// TestFlagsStayWithinTheFile: an error names the flag, its value and the file's; 0 for no bound is beyond any.
func TestFlagsStayWithinTheFile(t *testing.T) {
	floor := write(t, "floor.toml", "version = 1\n[agent]\nmemory = \"1G\"\nidle_stop = \"10m\"\nlifetime = \"8h\"\ncpus = 1\n")
	env := []string{"HOME=" + t.TempDir(), "XDG_CONFIG_HOME="}
	for flag, want := range map[string]string{
		"--max-memory=4G":   "--max-memory 4G is beyond agent.memory of the policy file, which is 1G",
		"--max-cpus=2":      "--max-cpus 2 is beyond agent.cpus of the policy file, which is 1",
		"--lifetime=0":      "--lifetime 0 is beyond agent.lifetime of the policy file, which is 8h0m0s",
		"--lifetime=9h":     "--lifetime 9h0m0s is beyond agent.lifetime",
		"--idle-stop=0":     "--idle-stop 0 is beyond agent.idle_stop",
		"--idle-stop=1m":    "",
		"--lifetime=1h":     "",
		"--max-memory=512M": "",
	} {
		r := msb(t, env, "mcp", "install", "cursor", "--print", "--policy", floor, flag)
		if (r.code != 0) != (want != "") || !strings.Contains(r.err, want) {
			t.Errorf("%s: %+v; want %q", flag, r, want)
		}
	}
}
