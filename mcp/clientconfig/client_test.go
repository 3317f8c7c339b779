package clientconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// atHome is a user's directory with a project in it, which is the working directory.
func atHome(t *testing.T) (home, project string) {
	t.Helper()
	home = t.TempDir()
	project = filepath.Join(home, "project")
	if err := os.Mkdir(project, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Chdir(project)
	return home, project
}

func install(t *testing.T, name string, scope Scope, args ...string) *Change {
	t.Helper()
	c, err := Install(name, scope, "/opt/msb", args)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	return c
}

func remove(t *testing.T, name string, scope Scope) *Change {
	t.Helper()
	c, err := Uninstall(name, scope)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	return c
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestInstallAndUninstallPerClient(t *testing.T) {
	home, project := atHome(t)
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	zed := filepath.Join(config, "zed/settings.json")
	if runtime.GOOS == "darwin" {
		zed = filepath.Join(home, ".config/zed/settings.json")
	}
	const plain = `{"command":"/opt/msb","args":["mcp","--policy=/f"]}`
	const typed = `{"type":"stdio","command":"/opt/msb","args":["mcp","--policy=/f"]}`
	for name, want := range map[string]struct{ user, project, table, entry string }{
		"claude-code":    {filepath.Join(home, ".claude.json"), ".mcp.json", "mcpServers", typed},
		"claude-desktop": {filepath.Join(config, "Claude/claude_desktop_config.json"), "", "mcpServers", plain},
		"codex":          {filepath.Join(home, ".codex/config.toml"), ".codex/config.toml", "mcp_servers", plain},
		"cursor":         {filepath.Join(home, ".cursor/mcp.json"), ".cursor/mcp.json", "mcpServers", plain},
		"gemini":         {filepath.Join(home, ".gemini/settings.json"), ".gemini/settings.json", "mcpServers", plain},
		"opencode":       {filepath.Join(home, ".config/opencode/opencode.json"), "opencode.json", "mcp", `{"type":"local","command":["/opt/msb","mcp","--policy=/f"],"enabled":true}`},
		"vscode":         {filepath.Join(config, "Code/User/mcp.json"), ".vscode/mcp.json", "servers", typed},
		"windsurf":       {filepath.Join(home, ".codeium/windsurf/mcp_config.json"), "", "mcpServers", plain},
		"zed":            {zed, ".zed/settings.json", "context_servers", `{"source":"custom","command":"/opt/msb","args":["mcp","--policy=/f"],"env":{}}`},
	} {
		for scope, file := range map[Scope]string{User: want.user, Project: want.project} {
			if file == "" {
				if _, err := Install(name, scope, "msb", nil); !errors.Is(err, ErrScope) {
					t.Errorf("%s has no project's configuration: %v", name, err)
				}
				continue
			}
			if scope == Project {
				file = filepath.Join(project, file)
			}
			c := install(t, name, scope, "mcp", "--policy=/f")
			if c.Path != file {
				t.Errorf("%s: wrote %s, want %s", name, c.Path, file)
			}
			var got map[string]map[string]any
			if b := []byte(content(t, file)); strings.HasSuffix(file, ".toml") {
				err = toml.Unmarshal(b, &got)
			} else {
				err = json.Unmarshal(b, &got)
			}
			entry, _ := json.Marshal(got[want.table]["msb"])
			var x, y any
			_, _ = json.Unmarshal(entry, &x), json.Unmarshal([]byte(want.entry), &y)
			if a, _ := json.Marshal(x); err != nil || string(a) != func() string { b, _ := json.Marshal(y); return string(b) }() {
				t.Errorf("%s: %s, %v; want %s", name, entry, err, want.entry)
			}
			if again := install(t, name, scope, "mcp", "--policy=/f"); again.Changes() {
				t.Errorf("%s: a second time it changes\n%s", name, again.After)
			}
			gone := remove(t, name, scope)
			if left, err := filepath.Glob(file + "*"); !gone.Changes() || err != nil || len(left) > 0 {
				t.Errorf("%s: left %q, %v", name, left, err)
			}
			if remove(t, name, scope).Changes() {
				t.Errorf("%s: what is gone is removed again", name)
			}
		}
	}
	if _, err := Install("emacs", User, "msb", nil); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "claude-code, claude-desktop") {
		t.Error(err)
	}
	if _, err := Install("zed", "local", "msb", nil); !errors.Is(err, ErrScope) {
		t.Error(err)
	}
}

var documentedEntry = regexp.MustCompile("(?ms)^## What is written$.*?^```(?:json|toml)\n(.*?)^```$")

// TestEachClientHasAPage, with the entry that --print shows and the file that it goes to.
func TestEachClientHasAPage(t *testing.T) {
	pages, err := filepath.Glob("../../docs/clients/*.md")
	if err != nil || len(pages) != len(Names()) {
		t.Errorf("%d pages for %d clients, %v", len(pages), len(Names()), err)
	}
	contents := make(map[string]string)
	for _, name := range Names() {
		contents[name] = content(t, "../../docs/clients/"+name+".md")
	}
	home, dir := atHome(t)
	for name, page := range contents {
		c, err := Install(name, User, "/usr/local/bin/msb", []string{"mcp"})
		if err != nil {
			t.Fatal(err)
		}
		if m := documentedEntry.FindStringSubmatch(page); m == nil || string(c.After) != m[1] {
			t.Errorf("%s: got\n%s\nThe page has\n%q", name, c.After, m)
		}
		if path := "`~" + strings.TrimPrefix(c.Path, home) + "`"; !strings.Contains(page, path) {
			t.Errorf("%s: the page doesn't name %s", name, path)
		}
		project, err := Install(name, Project, "msb", []string{"mcp"})
		if err == nil && !strings.Contains(page, "`"+strings.TrimPrefix(project.Path, dir+"/")+"`") {
			t.Errorf("%s: the page doesn't name %s", name, project.Path)
		}
		if (err != nil) != strings.Contains(page, "no configuration of a project") {
			t.Errorf("%s: a project's configuration: %v", name, err)
		}
	}
}

// TestNothingElseChanges: what is in a file besides msb's entry is the same afterwards, byte by byte.
func TestNothingElseChanges(t *testing.T) {
	home, _ := atHome(t)
	for what, c := range map[string]struct{ client, file, before, after string }{
		"comments and a trailing comma": {
			"zed", ".config/zed/settings.json",
			"// mine\n{\n\t\"theme\": \"One\", // dark\n\t\"tabs\": /* wide */ 4,\n}\n",
			"// mine\n{\n\t\"theme\": \"One\", // dark\n\t\"tabs\": /* wide */ 4,\n\t\"context_servers\": {\n\t\t\"msb\": {\n\t\t\t\"source\": \"custom\",\n\t\t\t\"command\": \"/opt/msb\",\n\t\t\t\"args\": [\n\t\t\t\t\"mcp\"\n\t\t\t],\n\t\t\t\"env\": {}\n\t\t}\n\t}\n}\n",
		},
		"another server": {
			"cursor", ".cursor/mcp.json",
			"{\n  \"mcpServers\": {\n    \"db\": {\"command\": \"x\"}\n  },\n  \"z\": 1\n}\n",
			"{\n  \"mcpServers\": {\n    \"db\": {\"command\": \"x\"},\n    \"msb\": {\n      \"command\": \"/opt/msb\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  },\n  \"z\": 1\n}\n",
		},
		"an empty table": {
			"windsurf", ".codeium/windsurf/mcp_config.json", "{\n  \"mcpServers\": {}\n}\n",
			"{\n  \"mcpServers\": {\n    \"msb\": {\n      \"command\": \"/opt/msb\",\n      \"args\": [\n        \"mcp\"\n      ]\n    }\n  }\n}\n",
		},
		"an older entry": {
			"gemini", ".gemini/settings.json", "{\"mcpServers\": {\"msb\": {\"command\": \"old\"}}, \"a\": [1,2]}",
			"",
		},
		"tables of TOML": {
			"codex", ".codex/config.toml",
			"model = \"x\" # mine\n\n[mcp_servers.db]\ncommand = \"y\"\n\n[profiles.a]\nb = 1\n",
			"model = \"x\" # mine\n\n[mcp_servers.db]\ncommand = \"y\"\n\n[profiles.a]\nb = 1\n\n[mcp_servers.msb]\ncommand = \"/opt/msb\"\nargs = [\"mcp\"]\n",
		},
	} {
		path := filepath.Join(home, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.before), 0o640); err != nil {
			t.Fatal(err)
		}
		install(t, c.client, User, "mcp")
		if got := content(t, path); c.after != "" && got != c.after {
			t.Errorf("%s: got\n%s\nwant\n%s", what, got, c.after)
		}
		if got := content(t, path+BackupEnding); got != c.before {
			t.Errorf("%s: the copy holds\n%s", what, got)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: mode %v, %v", what, info.Mode(), err)
		}
		if remove(t, c.client, User); what != "an older entry" {
			if got := content(t, path); got != c.before {
				t.Errorf("%s: without msb\n%s\nwant\n%s", what, got, c.before)
			}
			if _, err := os.Stat(path + BackupEnding); err == nil {
				t.Errorf("%s: the copy is left", what)
			}
			continue
		}
		if got := content(t, path); strings.Contains(got, "msb") || strings.Contains(c.before, "mine") != strings.Contains(got, "mine") {
			t.Errorf("%s: without msb\n%s", what, got)
		}
	}
}

// TestTOMLTablesAreReplacedInPlace, with the tables below it.
func TestTOMLTablesAreReplacedInPlace(t *testing.T) {
	home, _ := atHome(t)
	path := filepath.Join(home, ".codex/config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	before := "a = 1\n\n[mcp_servers.msb] # old\ncommand = \"old\"\n[mcp_servers.msb.env]\nX = \"1\"\n\n[z]\nb = 2\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	install(t, "codex", User, "mcp")
	if got, want := content(t, path), "a = 1\n\n[mcp_servers.msb]\ncommand = \"/opt/msb\"\nargs = [\"mcp\"]\n\n[z]\nb = 2\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	remove(t, "codex", User)
	if got, want := content(t, path), "a = 1\n\n[z]\nb = 2\n"; got != want {
		t.Errorf("without msb\n%s\nwant\n%s", got, want)
	}
}

// TestUnknownConfigurationStaysUntouched, and the error names the file.
func TestUnknownConfigurationStaysUntouched(t *testing.T) {
	home, _ := atHome(t)
	for _, c := range []struct{ client, file, doc string }{
		{"cursor", ".cursor/mcp.json", "{ not JSON"},
		{"cursor", ".cursor/mcp.json", "[]"},
		{"cursor", ".cursor/mcp.json", `{"mcpServers": []}`},
		{"cursor", ".cursor/mcp.json", `{"mcpServers": {}, "mcpServers": {}}`},
		{"codex", ".codex/config.toml", "a = = 1"},
		{"codex", ".codex/config.toml", "mcp_servers.msb.command = \"old\"\n"},
		{"codex", ".codex/config.toml", "[mcp_servers]\nmsb = {command = \"old\"}\n"},
		{"codex", ".codex/config.toml", "[mcp_servers]\nmsb = {}\n"}, // extended, no strict reader reads it
		{"codex", ".codex/config.toml", "mcp_servers = { x = {command=\"y\"} }\n"},
		{"codex", ".codex/config.toml", "\"mcp_servers\" = {}\n[a]\nb = 1\n"},
		{"codex", ".codex/config.toml", "[[mcp_servers]]\na = 1\n"},
		{"codex", ".codex/config.toml", "mcp_servers = 1\n"},
		// What looks like msb's table is in a text.
		{"codex", ".codex/config.toml", "x = \"\"\"\n[mcp_servers.msb]\n[y]\n\"\"\"\n[mcp_servers.msb]\ncommand = \"old\"\n"},
		{"codex", ".codex/config.toml", "[mcp_servers.db]\nx = \"\"\"\n[mcp_servers.msb]\n[y]\n\"\"\"\n[mcp_servers.msb]\ncommand = \"old\"\n"},
		{"codex", ".codex/config.toml", "x = \"\"\"\n[mcp_servers.msb]\n\"\"\"\n[mcp_servers.msb]\ncommand = \"old\"\n"},
	} {
		path := filepath.Join(home, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.doc), 0o600); err != nil {
			t.Fatal(err)
		}
		change, err := Install(c.client, User, "/opt/msb", []string{"mcp"})
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %+v, %v", c.doc, change, err)
		}
	}
}

// TestAProjectsLinksAreNotFollowed: else a repository would choose which of its user's files is written.
func TestAProjectsLinksAreNotFollowed(t *testing.T) {
	home, project := atHome(t)
	target := filepath.Join(home, "precious.json")
	if err := os.WriteFile(target, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(project, ".mcp.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(home, filepath.Join(project, ".cursor")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claude-code", "cursor"} {
		if _, err := Install(name, Project, "msb", nil); err == nil || !strings.Contains(err.Error(), "is a link") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Symlink(target, filepath.Join(home, ".claude.json")); err != nil { // a user's own is
		t.Fatal(err)
	}
	if c := install(t, "claude-code", User, "mcp"); filepath.Base(c.Path) != "precious.json" {
		t.Errorf("wrote %s", c.Path)
	}
}

// TestTheCopyIsWithoutMSB, whatever is installed after it, and stays where somebody else changed the file.
func TestTheCopyIsWithoutMSB(t *testing.T) {
	home, _ := atHome(t)
	path := filepath.Join(home, ".claude.json")
	const before = `{"mine": [1,2]}`
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	install(t, "claude-code", User, "mcp")
	install(t, "claude-code", User, "mcp", "--policy=/f")
	if got := content(t, path+BackupEnding); got != before {
		t.Errorf("after a second install the copy holds %s", got)
	}
	changed := strings.Replace(content(t, path), "[1,2]", "[1,2,3]", 1)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	remove(t, "claude-code", User)
	if got := content(t, path); !strings.Contains(got, "[1,2,3]") || strings.Contains(got, "msb") {
		t.Errorf("what was changed meanwhile: %s", got)
	}
	if got := content(t, path+BackupEnding); got != before {
		t.Errorf("the copy holds %s", got)
	}
	without := content(t, path)
	install(t, "claude-code", User, "mcp")
	if got := content(t, path+BackupEnding); got != without {
		t.Errorf("a later install: the copy holds %s, want %s", got, without)
	}
}

// TestFaultsOfFilesAreNamed in plain words, and nothing is written.
func TestFaultsOfFilesAreNamed(t *testing.T) {
	home, _ := atHome(t)
	for what, c := range map[string]struct {
		client, file, doc string
		mode              os.FileMode
		say               string
	}{
		"comment":         {"claude-code", ".claude.json", "{\n  // mine\n  \"a\": 1\n}", 0o600, "Claude Code can't read this file: a comment in line 2"},
		"trailing comma":  {"claude-code", ".claude.json", "{\"a\": 1,\n}", 0o600, "a trailing comma in line 2"},
		"comma at an end": {"claude-desktop", ".config/Claude/claude_desktop_config.json", "{\"a\": 1,}\n", 0o600, "a trailing comma in line 1"},
		"not JSON":        {"claude-code", ".claude.json", "{ not JSON", 0o600, "line 1, column 3"},
		"BOM":             {"cursor", ".cursor/mcp.json", "\xef\xbb\xbf{}", 0o600, "byte order mark"},
		"null":            {"cursor", ".cursor/mcp.json", "null", 0o600, "the file is no object of JSON"},
		"null servers":    {"cursor", ".cursor/mcp.json", `{"mcpServers": null}`, 0o600, `"mcpServers" is no object of JSON`},
		"read-only":       {"cursor", ".cursor/mcp.json", "{}", 0o444, "is read-only"},
	} {
		path := filepath.Join(home, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(path, []byte(c.doc), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		change, err := Install(c.client, User, "/opt/msb", []string{"mcp"})
		if err == nil {
			err = change.Write()
		}
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.say) || strings.Contains(err.Error(), "hujson") {
			t.Errorf("%s: %v", what, err)
		}
		if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 1 || content(t, path) != c.doc {
			t.Errorf("%s: left %q, %v", what, left, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestErrorsNameTheUsersFile.
func TestErrorsNameTheUsersFile(t *testing.T) {
	home, _ := atHome(t)
	path := filepath.Join(home, ".claude.json")
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+BackupEnding, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := Install("claude-code", User, "/opt/msb", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(); err == nil || !strings.HasPrefix(err.Error(), path+BackupEnding+" can't be written: ") || strings.Count(err.Error(), home) != 1 {
		t.Error(err)
	}
}

func TestAFileThatChangedMeanwhileStays(t *testing.T) {
	home, _ := atHome(t)
	c, err := Install("claude-code", User, "msb", nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(home, ".claude.json")
	if err := os.WriteFile(path, []byte(`{"a":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Write(); err == nil || content(t, path) != `{"a":1}` {
		t.Errorf("%v; it holds %s", err, content(t, path))
	}
}

// TestFilesOfInstallGoWithIt: a file that Install made has no copy, however often it is installed, and goes with it, and so
// does a project's directory with nothing else in it.
func TestFilesOfInstallGoWithIt(t *testing.T) {
	home, project := atHome(t)
	for scope, file := range map[Scope]string{User: filepath.Join(home, ".cursor", "mcp.json"), Project: filepath.Join(project, ".cursor", "mcp.json")} {
		for _, kept := range []bool{false, true} {
			install(t, "cursor", scope, "mcp")
			install(t, "cursor", scope, "mcp", "--policy=/f")
			other := filepath.Join(filepath.Dir(file), "rules")
			if kept {
				if err := os.WriteFile(other, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			remove(t, "cursor", scope)
			if left, err := filepath.Glob(file + "*"); err != nil || len(left) > 0 {
				t.Errorf("%s: left %q, %v", scope, left, err)
			}
			if _, err := os.Stat(filepath.Dir(file)); (err == nil) != (kept || scope == User) {
				t.Errorf("%s: the directory: %v", scope, err)
			}
		}
	}
}

// TestPresentFileEndingsAreUsed, and no link of a project is followed for it.
func TestPresentFileEndingsAreUsed(t *testing.T) {
	home, project := atHome(t)
	dir := filepath.Join(home, ".config", "opencode")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "opencode.jsonc"), []byte("{} // mine\n"), 0o600), os.Symlink(dir+"/x", filepath.Join(project, "opencode.jsonc"))); err != nil {
		t.Fatal(err)
	}
	if c := install(t, "opencode", User, "mcp"); c.Path != filepath.Join(dir, "opencode.jsonc") || !strings.Contains(content(t, c.Path), "// mine") {
		t.Errorf("%s", c.Path)
	}
	if _, err := Install("opencode", Project, "msb", nil); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("a link: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "opencode.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := install(t, "opencode", User, "mcp"); c.Path != filepath.Join(dir, "opencode.json") {
		t.Errorf("%s, with both", c.Path)
	}
}

// TestOtherClientsFilesEndAsTheyDo: where a client reads no .jsonc, one that is there is nobody's.
func TestOtherClientsFilesEndAsTheyDo(t *testing.T) {
	home, _ := atHome(t)
	path := filepath.Join(home, ".cursor", "mcp.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.WriteFile(path+"c", []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if c := install(t, "cursor", User, "mcp"); c.Path != path {
		t.Errorf("wrote %s", c.Path)
	}
}

// TestEqualEntriesAreNotRewritten: an entry that says the same in another way is no reason to write, nor is one that is not
// there, even to a file that can't be written.
func TestEqualEntriesAreNotRewritten(t *testing.T) {
	home, _ := atHome(t)
	const noFile = "{\n  \"mcpServers\": {}\n}\n" // what Install and Uninstall could leave of a new file
	for what, c := range map[string]struct {
		client, file, doc string
		uninstall         bool
	}{
		"compact":             {"cursor", ".cursor/mcp.json", `{"mcpServers": {"msb": {"args":["mcp"],"command":"/opt/msb"}}}`, false},
		"comments":            {"cursor", ".cursor/mcp.json", "{\"mcpServers\": {\"msb\": {\"args\":[\"mcp\",],/* mine */\"command\":\"/opt/msb\"}}}", false},
		"an inline table":     {"codex", ".codex/config.toml", "[mcp_servers]\nmsb = {command = \"/opt/msb\", args = [\"mcp\"]}\n", false},
		"another's":           {"codex", ".codex/config.toml", "mcp_servers = {x = {command = \"y\"}}\n", true},
		"comments, no msb":    {"claude-code", ".claude.json", "{} // mine\n", true},
		"removed by a person": {"windsurf", ".codeium/windsurf/mcp_config.json", noFile, true},
		"empty":               {"gemini", ".gemini/settings.json", "", true},
	} {
		path := filepath.Join(home, c.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.doc), 0o444)); err != nil {
			t.Fatal(err)
		}
		if what == "removed by a person" {
			if err := os.WriteFile(path+BackupEnding, []byte("{}"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		change, err := Install(c.client, User, "/opt/msb", []string{"mcp"})
		if c.uninstall {
			change, err = Uninstall(c.client, User)
		}
		if err == nil {
			err = change.Write()
		}
		if err != nil || change.Changes() || content(t, path) != c.doc {
			t.Errorf("%s: %v, %s", what, err, content(t, path))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilesLikeOursHaveABackup: a file that looks like what Install and Uninstall make of none, and an empty one, come
// back as they were.
func TestFilesLikeOursHaveABackup(t *testing.T) {
	home, _ := atHome(t)
	path := filepath.Join(home, ".cursor", "mcp.json")
	with, err := editJSON(nil, "mcpServers", stdio("msb", []string{"mcp"}))
	if err != nil {
		t.Fatal(err)
	}
	without, err := editJSON(with, "mcpServers", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []string{string(without), ""} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(before), 0o600)); err != nil {
			t.Fatal(err)
		}
		install(t, "cursor", User, "mcp")
		if got := content(t, path+BackupEnding); got != before {
			t.Errorf("the copy of %q holds %q", before, got)
		}
		remove(t, "cursor", User)
		if got := content(t, path); got != before {
			t.Errorf("%q came back as %q", before, got)
		}
	}
}

// TestEntriesStandAsTheDocumentDoes: indented as its first member is, and comments stay where they were.
func TestEntriesStandAsTheDocumentDoes(t *testing.T) {
	for what, c := range map[string]struct{ before, after string }{
		"one line":         {`{"a": 1}`, "{\"a\": 1,\n  \"s\": {\n    \"msb\": 1\n  }\n}"},
		"a comment first":  {"{\n\t// mine\n\t\"a\": 1\n}", "{\n\t// mine\n\t\"a\": 1,\n  \"s\": {\n    \"msb\": 1\n  }\n}"},
		"a comment behind": {"{ // mine\n\t\"a\": 1\n}", "{ // mine\n\t\"a\": 1,\n\t\"s\": {\n\t\t\"msb\": 1\n\t}\n}"},
		"a blank line":     {"{\n\n    \"a\": 1\n}", "{\n\n    \"a\": 1,\n    \"s\": {\n        \"msb\": 1\n    }\n}"},
		"an older entry":   {"{\n  \"s\": {\n    // mine\n    \"msb\": 2\n  }\n}", "{\n  \"s\": {\n    // mine\n    \"msb\": 1\n  }\n}"},
	} {
		got, err := editJSON([]byte(c.before), "s", 1)
		if err != nil || string(got) != c.after {
			t.Errorf("%s: got\n%s\n%v, want\n%s", what, got, err, c.after)
		}
	}
}

// TestWhatIsNoFileIsNamed, and no error has the name of a temporary file.
func TestWhatIsNoFileIsNamed(t *testing.T) {
	home, _ := atHome(t)
	path := filepath.Join(home, ".claude.json")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install("claude-code", User, "msb", nil); err == nil || err.Error() != path+" is no regular file" {
		t.Error(err)
	}
	for size, want := range map[int64]string{maxFile: "can't be read as JSON", maxFile + 1: "is larger than 64 MiB"} {
		path := filepath.Join(home, ".gemini", "settings.json")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		if _, err := Install("gemini", User, "msb", nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	path = filepath.Join(home, "missing", "x.json")
	if err := put(path, nil, 0o600); err == nil || err.Error() != path+" can't be written: no such file or directory" {
		t.Error(err)
	}
}

// TestKeysOfOthersAreNamed where a new entry has no place for them, and the copy holds them.
func TestKeysOfOthersAreNamed(t *testing.T) {
	home, _ := atHome(t)
	for name, c := range map[string]struct{ file, before, want string }{
		"cursor":   {".cursor/mcp.json", `{"mcpServers": {"msb": {"command": "x", "timeout": 5, "env": {"A": "b"}, /* mine */ "e": 1, "d": 1, "c": 1, "b": 1, "a": 1}}}`, "[a b c d e env timeout]"},
		"codex":    {".codex/config.toml", "[mcp_servers.msb]\ncommand = \"x\"\nstartup_timeout_sec = 5\n", "[startup_timeout_sec]"},
		"gemini":   {".gemini/settings.json", `{"mcpServers": {"msb": {"command": "x", "args": []}}}`, "[]"},
		"windsurf": {".codeium/windsurf/mcp_config.json", `{"mcpServers": {}}`, "[]"},
	} {
		path := filepath.Join(home, c.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(c.before), 0o600)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(install(t, name, User, "mcp").Dropped); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if copied, err := os.ReadFile(path + BackupEnding); name != "gemini" && string(copied) != c.before {
			t.Errorf("%s: the copy holds %s, %v", name, copied, err)
		}
	}
}
