package clientconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/tailscale/hujson"
)

// serverName is msb's name among a client's servers.
const serverName = "msb"

// Scope says whose configuration is meant.
type Scope string

// The scopes.
const (
	User    Scope = "user"    // of the user, for all projects
	Project Scope = "project" // of the working directory, shared with whoever works there
)

// Errors that callers tell apart. They are wrapped.
var (
	ErrUnknown = errors.New("no such client")
	ErrScope   = errors.New("no such scope")
)

// client is how one program keeps its servers.
type client struct {
	name, title string
	servers     string // the table of servers
	entry       func(command string, args []string) any
	user        func(home, config string) string // config is where the system keeps configuration
	project     string                           // "" for none
	restart     string                           // what to do to make the change visible
	leave       string                           // what to do after Uninstall, if that differs
	strict      bool                             // it reads JSON without comments and trailing commas only
	jsonc       bool                             // its files may end in .jsonc instead of .json
	edit        func(doc []byte, table string, entry any) ([]byte, error)
}

// stdio is the entry of most clients.
func stdio(command string, args []string) any {
	return struct {
		Command string   `json:"command" toml:"command"`
		Args    []string `json:"args" toml:"args"`
	}{command, args}
}

func typed(command string, args []string) any {
	return struct {
		Type    string   `json:"type"`
		Command string   `json:"command"`
		Args    []string `json:"args"`
	}{"stdio", command, args}
}

// all clients, with the paths that their documentation names (looked up in November 2026).
var all = []client{
	{name: "claude-code", title: "Claude Code", strict: true, servers: "mcpServers", entry: typed, project: ".mcp.json", restart: "start a new session",
		user: func(home, _ string) string { return filepath.Join(home, ".claude.json") }},
	{name: "claude-desktop", title: "Claude Desktop", strict: true, servers: "mcpServers", entry: stdio, restart: "restart it",
		user: func(_, config string) string { return filepath.Join(config, "Claude", "claude_desktop_config.json") }},
	{name: "codex", title: "Codex", servers: "mcp_servers", entry: stdio, project: ".codex/config.toml", edit: editTOML, restart: "start a new session",
		user: func(home, _ string) string { return filepath.Join(home, ".codex", "config.toml") }},
	{name: "cursor", title: "Cursor", servers: "mcpServers", entry: stdio, project: ".cursor/mcp.json", restart: "turn msb on in its settings", leave: "restart it",
		user: func(home, _ string) string { return filepath.Join(home, ".cursor", "mcp.json") }},
	{name: "gemini", title: "Gemini CLI", servers: "mcpServers", entry: stdio, project: ".gemini/settings.json", restart: "start a new session",
		user: func(home, _ string) string { return filepath.Join(home, ".gemini", "settings.json") }},
	{name: "opencode", title: "opencode", servers: "mcp", jsonc: true, project: "opencode.json", restart: "start a new session",
		entry: func(command string, args []string) any {
			return struct {
				Type    string   `json:"type"`
				Command []string `json:"command"`
				Enabled bool     `json:"enabled"`
			}{"local", append([]string{command}, args...), true}
		},
		user: func(home, _ string) string { return filepath.Join(home, ".config", "opencode", "opencode.json") }},
	{name: "vscode", title: "VS Code", servers: "servers", entry: typed, project: ".vscode/mcp.json", restart: "start msb in its list of MCP servers", leave: "restart it",
		user: func(_, config string) string { return filepath.Join(config, "Code", "User", "mcp.json") }},
	{name: "windsurf", title: "Windsurf", servers: "mcpServers", entry: stdio, restart: "refresh its list of MCP servers",
		user: func(home, _ string) string { return filepath.Join(home, ".codeium", "windsurf", "mcp_config.json") }},
	{name: "zed", title: "Zed", servers: "context_servers", project: ".zed/settings.json", restart: "open its agent panel", leave: "restart it",
		entry: func(command string, args []string) any {
			return struct {
				Source  string            `json:"source"`
				Command string            `json:"command"`
				Args    []string          `json:"args"`
				Env     map[string]string `json:"env"`
			}{"custom", command, args, map[string]string{}}
		},
		user: func(home, config string) string {
			if runtime.GOOS == "darwin" {
				config = filepath.Join(home, ".config")
			}
			return filepath.Join(config, "zed", "settings.json")
		}},
}

// Names are the clients, sorted.
func Names() []string {
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].name
	}
	return names
}

// Change is what is to be written for one client.
type Change struct {
	// Title is the client's name, Restart what a person does for the change to be seen.
	Title, Restart string
	// Path is the file. Before is nil if there is none, After if it is to be removed; they are equal if nothing changes.
	Path          string
	Before, After []byte
	// Dropped are keys of an entry msb that the change takes out: somebody else's.
	Dropped []string
	// undo says that After is the file as it was before msb was installed, backup that Before is that file. again says that
	// Install made Before.
	undo, backup, again bool
	// dir is a directory of a project that goes with the file if nothing else is in it.
	dir string
}

// Install is the change that adds command, with args, as the server msb of a client.
func Install(name string, scope Scope, command string, args []string) (*Change, error) {
	c, path, before, err := open(name, scope)
	if err != nil {
		return nil, err
	}
	after, err := c.edit(before, c.servers, c.entry(command, append([]string{}, args...)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.strict && len(bytes.TrimSpace(before)) > 0 {
		if err := strictJSON(before); err != nil {
			return nil, fmt.Errorf("%s: %s can't read this file: %w; take it out, and run the command again", path, c.title, err)
		}
	}
	change := &Change{Title: c.title, Restart: c.restart, Path: path, Before: before, After: after}
	if !change.Changes() {
		return change, nil
	}
	bare, err := c.edit(before, c.servers, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	change.backup = bytes.Equal(bare, before)
	change.Dropped = c.dropped(before, after, strings.HasSuffix(path, ".toml"))
	change.again = len(change.Dropped) == 0 && !change.backup && c.undoes(nil, bare)
	return change, nil
}

// Uninstall is the change that removes the server msb.
func Uninstall(name string, scope Scope) (*Change, error) {
	c, path, before, err := open(name, scope)
	if err != nil {
		return nil, err
	}
	after, err := c.edit(before, c.servers, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	change := &Change{Title: c.title, Restart: cmp.Or(c.leave, c.restart), Path: path, Before: before, After: after}
	if !change.Changes() {
		return change, nil
	}
	first, err := read(path + BackupEnding)
	if err != nil {
		return nil, err
	}
	if c.undoes(first, after) {
		change.After, change.undo = first, true
	}
	if scope == Project && strings.Contains(c.project, "/") {
		change.dir = filepath.Dir(path)
	}
	return change, nil
}

// dropped are the keys of before's entry msb that after's entry lacks. Both files are valid.
func (c *client) dropped(before, after []byte, isTOML bool) []string {
	read := func(doc []byte) map[string]any {
		var all map[string]any
		if isTOML {
			_ = toml.Unmarshal(doc, &all)
		} else if plain, err := hujson.Standardize(slices.Clone(doc)); err == nil {
			_ = json.Unmarshal(plain, &all)
		}
		servers, _ := all[c.servers].(map[string]any)
		entry, _ := servers[serverName].(map[string]any)
		return entry
	}
	var keys []string
	stays := read(after)
	for key := range read(before) {
		if _, ok := stays[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// undoes reports whether after is what Install and then Uninstall make of first, the file without msb: then nobody else has
// changed the file.
func (c *client) undoes(first, after []byte) bool {
	bare, err := c.edit(first, c.servers, nil)
	if err != nil || !bytes.Equal(bare, first) {
		return false
	}
	with, err := c.edit(first, c.servers, c.entry("msb", []string{"mcp"}))
	if err != nil {
		return false
	}
	without, err := c.edit(with, c.servers, nil)
	return err == nil && bytes.Equal(without, after)
}

// open finds a client and reads its file.
func open(name string, scope Scope) (c *client, path string, doc []byte, err error) {
	i := slices.IndexFunc(all, func(c client) bool { return c.name == name })
	if i < 0 {
		return nil, "", nil, fmt.Errorf("%w: %s; there are: %s", ErrUnknown, name, strings.Join(Names(), ", "))
	}
	found := all[i]
	if found.edit == nil {
		found.edit = editJSON
	}
	if path, err = found.path(scope); err != nil {
		return nil, "", nil, err
	}
	doc, err = read(path)
	return &found, path, doc, err
}

// path is the file of a scope. Links in a user's own configuration are followed, since dotfiles are often kept elsewhere.
// Links in a project are not: the project's author would choose which file is written.
func (c *client) path(scope Scope) (string, error) {
	switch {
	case scope == Project && c.project == "":
		return "", fmt.Errorf("%w: %s has no configuration of a project; use the scope user", ErrScope, c.title)
	case scope == Project:
		dir, err := os.Getwd()
		if err != nil {
			return "", err
		}
		file := c.orJSONC(filepath.Join(dir, filepath.FromSlash(c.project)))
		return file, errors.Join(noLink(dir, c.project), noLink(filepath.Dir(file), filepath.Base(file)))
	case scope != User:
		return "", fmt.Errorf("%w: %q; write user or project", ErrScope, string(scope))
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	path := c.orJSONC(c.user(home, config))
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return path, nil
}

// orJSONC is the path with the other ending, if the client reads both and only that file exists.
func (c *client) orJSONC(path string) string {
	if !c.jsonc {
		return path
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Lstat(path + "c"); err == nil {
			return path + "c"
		}
	}
	return path
}

func noLink(dir, file string) error {
	for at, parts := dir, strings.Split(file, "/"); len(parts) > 0; parts = parts[1:] {
		at = filepath.Join(at, parts[0])
		info, err := os.Lstat(at)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("%s is a link: msb writes to no file that a project's link names", at)
		}
	}
	return nil
}
