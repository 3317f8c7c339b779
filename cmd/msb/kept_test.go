package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// What --rm=false left can be seen and removed; what msb did not make stays.
func TestKeptRunsCanBeRemoved(t *testing.T) {
	t.Parallel()
	home := filepath.Join(t.TempDir(), "home")
	env := []string{sandbox.EnvHome + "=" + home}
	if got := msb(t, env, "ls", "--kept", "-q"); got.code != 0 || got.out != "" {
		t.Fatalf("nothing was kept: %+v", got)
	}
	const id, foreign = "sb-0123456789ab", "sb-0123456789ac"
	for dir, file := range map[string]string{id: "console.log", foreign: "thesis.txt"} {
		if err := os.MkdirAll(filepath.Join(home, "kept", dir), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "kept", dir, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := msb(t, env, "ls", "--kept"); got.code != 0 || !strings.Contains(got.out, id) || !strings.Contains(got.out, filepath.Join(home, "kept", id)) {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "ls", "--kept", "--json"); got.code != 0 || !strings.Contains(got.out, `"id": "`+id+`"`) || !strings.Contains(got.out, `"directory": "`+filepath.Join(home, "kept", id)+`"`) {
		t.Errorf("%+v", got)
	}
	if got := msb(t, env, "rm", id); got.code != 0 || got.out != id+"\n" {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"rm", foreign}, {"rm", "-f", foreign}} { // not msb's: the cause is named, as by msb prune
		if got := msb(t, env, args...); got.code == 0 || got.out != "" || !strings.Contains(got.err, "thesis.txt") || strings.Contains(got.err, sandbox.ErrNoSandbox.Error()) {
			t.Errorf("%q: %+v", args, got)
		}
	}
	for _, name := range []string{id, "sb-0123456789ad"} { // gone, never there
		if got := msb(t, env, "rm", name); got.code != exitSandbox {
			t.Errorf("%s: %+v", name, got)
		}
		if got := msb(t, env, "rm", "-f", name); got.code != 0 || got.out != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if _, err := os.Stat(filepath.Join(home, "kept", foreign, "thesis.txt")); err != nil {
		t.Error(err)
	}
	if got := msb(t, env, "ls", "--kept", "-q"); got.out != foreign+"\n" {
		t.Errorf("%+v", got)
	}
}
