package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

func TestShellsCompleteNamesPresetsAndBackends(t *testing.T) {
	t.Parallel()
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	for args, want := range map[string]string{"policy presets|": "pypi\n", "run --vm|": "krun\n", "create --pull|": "never\n", "run -p|": "toml\n:8\n", "start|": ":4\n"} {
		words := append([]string{"__complete"}, strings.Fields(strings.TrimSuffix(args, "|"))...)
		if got := msb(t, env, append(words, "")...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%q: %+v, want %q", words, got, want)
		}
	}
}
