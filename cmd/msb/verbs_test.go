package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// withoutGuest are the commands that have to do with no guest; each of the others has a test with a real one (build tag
// vmtest). Commands that have others below them need none.
var withoutGuest = []string{
	"dns", "gateway", "image history", "image inspect", "image load", "image ls", "image prune", "image pull", "image rm", "image save",
	"install", "login", "logout", "mcp install", "mcp uninstall", "policy check", "policy diff", "policy explain", "policy from-flags",
	"policy presets", "policy schema", "policy show", "uninstall",
}

// throughOthers are commands that no command line of the tests has: ssh calls the first, and what the others do is tested
// where it is done, in sandbox and mcp.
var throughOthers = []string{"ssh-proxy", "requests ls", "requests approve", "requests deny", "server start"}

// TestEveryCommandHasATest finds for each command a test that has its words beside each other.
func TestEveryCommandHasATest(t *testing.T) {
	t.Parallel()
	fast, guests := testBodies(t)
	commands := map[string]bool{}
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return
		}
		path := strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "msb"), " ")
		commands[path] = true
		words := `"` + strings.ReplaceAll(path, " ", `", "`) + `"`
		body := guests
		if slices.Contains(withoutGuest, path) {
			body += fast
		}
		if c.Runnable() && !c.HasSubCommands() && !slices.Contains(throughOthers, path) && !strings.Contains(body, words) {
			t.Errorf("no test has %s: msb %s needs one, with a real guest unless it is in withoutGuest", words, path)
		}
		for _, below := range c.Commands() {
			look(below)
		}
	}
	look(newRoot(newUI(io.Discard, io.Discard)))
	for _, path := range slices.Concat(withoutGuest, throughOthers) {
		if !commands[path] {
			t.Errorf("msb %s is no command", path)
		}
	}
}

// testBodies is the text of this package's tests: those without guests, and those with real ones.
func testBodies(t *testing.T) (fast, guests string) {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), "//go:build vmtest\n") {
			guests += string(text)
		} else if name != "verbs_test.go" {
			fast += string(text)
		}
	}
	return fast, guests
}
