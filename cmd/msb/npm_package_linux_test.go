package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestNPMPackageRunsMSB packs msb as scripts/npm-pack does and runs it by npx, with a home of its own and without a network.
func TestNPMPackageRunsMSB(t *testing.T) {
	t.Parallel()
	npmFile(t, "") // what the package is for
	pack := finish(t, exec.CommandContext(t.Context(), "../../scripts/npm-pack", t.TempDir()))
	file := strings.TrimSpace(pack.out)
	if pack.code != 0 || !strings.HasSuffix(file, ".tgz") {
		t.Fatalf("%+v", pack)
	}
	home := t.TempDir()
	h := &mcpHost{home: home, env: []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}, namespaces: alone(syscall.CLONE_NEWNET)}
	npx := func(args ...string) *exec.Cmd {
		return h.client(t, append([]string{"npx", "--offline", "--yes", "file:" + file}, args...)...)
	}
	if r := finish(t, npx("nosuch")); r.code != exitOther || !strings.Contains(r.err, "unknown command") {
		t.Errorf("%+v", r)
	}
	found, err := filepath.Glob(filepath.Join(home, ".npm/_npx/*/node_modules/@msb-project/msb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("installed at %q, %v", found, err)
	}
	for _, name := range []string{"LICENSE", "NOTICE", "lib/msb/NOTICE", "lib/msb/LICENSE.libkrun", "skills/msb/SKILL.md"} {
		if _, err := os.Stat(filepath.Join(found[0], name)); err != nil {
			t.Error(err)
		}
	}
	installed := func(args ...string) result { // what npx starts, without the seconds that it takes
		return finish(t, h.client(t, append([]string{filepath.Join(found[0], "bin/msb.js")}, args...)...))
	}
	if r := installed("--version"); r.code != 0 || !strings.HasPrefix(r.out, "msb ") {
		t.Errorf("%+v", r)
	}
	if r := installed("mcp", "install", "cursor"); r.code != exitOther || !strings.Contains(r.err, "npx's cache") {
		t.Errorf("%+v", r)
	}
	r := installed("doctor", "--json")
	for _, name := range []string{"lib/msb/libkrun.so.1", "lib/msb/libkrunfw.so.5"} {
		if !strings.Contains(r.out, filepath.Join(found[0], name)) {
			t.Errorf("%s is not in %+v", name, r)
		}
	}

	server := npx("mcp")
	server.Stderr = t.Output()
	client, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &sdk.CommandTransport{Command: server}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := client.ListTools(t.Context(), nil); err != nil || client.InitializeResult().ServerInfo.Name != "msb" || len(list.Tools) != 12 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := client.Close(); err != nil {
		t.Errorf("its end: %v", err)
	}
}

// TestNPMPackScriptExplainsItself, and packs nothing for a flag that it doesn't know.
func TestNPMPackScriptExplainsItself(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]result{
		"--help": {code: 0, out: "scripts/npm-pack [DIRECTORY]"},
		"--nope": {code: 2, err: "unknown flag --nope"},
	} {
		r := finish(t, exec.CommandContext(t.Context(), "../../scripts/npm-pack", flag))
		if r.code != want.code || !strings.Contains(r.out, want.out) || !strings.Contains(r.err, want.err) || strings.Contains(r.out, "mkdir") {
			t.Errorf("%s: %+v", flag, r)
		}
	}
}

// TestNPMPackagePassesSignalsOn, and exit codes, where Node.js can give its process to msb and where it can't.
func TestNPMPackagePassesSignalsOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, err := os.ReadFile("../../packaging/npm/msb.js")
	if err != nil {
		t.Fatal(err)
	}
	start := filepath.Join(dir, "msb.js")
	if err := os.WriteFile(start, script, 0o755); err != nil {
		t.Fatal(err)
	}
	h := newMCPHost(t, "")
	if err := os.Symlink(h.msb, filepath.Join(dir, "msb")); err != nil {
		t.Fatal(err)
	}
	h.namespaces = nil // a resolver on loopback is asked
	node := npmFile(t, nodeJS)
	for _, without := range []string{"", "--import=data:text/javascript,delete%20process.execve"} {
		h.env = append(h.env, "NODE_OPTIONS="+without)
		if r := finish(t, h.client(t, node, start, "nosuch")); r.code != exitOther || !strings.Contains(r.err, "unknown command") {
			t.Errorf("%q: %+v", without, r)
		}
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			endsBy(t, sig, func(args ...string) *exec.Cmd { return h.client(t, append([]string{node, start}, args...)...) })
		}
	}
}
