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
	for args, want := range map[string]string{"policy presets|": "pypi\n", "run --vm|": "krun\n", "create --pull|": "never\n", "run --policy|": "toml\n:8\n", "run --preset|": "pypi\n", "start|": ":4\n"} {
		words := append([]string{"__complete"}, strings.Fields(strings.TrimSuffix(args, "|"))...)
		if got := msb(t, env, append(words, "")...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%q: %+v, want %q", words, got, want)
		}
	}
}

// TestCompletedFlagsAreExplained: as the help does, without the quotes that mark the word for a value.
func TestCompletedFlagsAreExplained(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"run --pres": "--preset\tlet out what the preset of this name does", "policy from-flags --pres": "--preset\tlet out", "ls --form": "--format\t"} {
		got := msb(t, nil, append([]string{"__complete"}, strings.Fields(line)...)...)
		if got.code != 0 || !strings.Contains(got.out, want) || strings.Contains(got.out, "`") {
			t.Errorf("%s: %+v, want %q", line, got, want)
		}
	}
}

func TestShellsCompleteSandboxesAndImages(t *testing.T) {
	t.Parallel()
	env, _ := loggedSandbox(t, "web") // from the built-in image
	for args, want := range map[string]string{
		"cp|": "web:\n:2\n", "cp w|": "web:\n:2\n", "cp ./x |": "web:\n:2\n", "cp web:/etc|": ":0\n", "cp ./x|": ":0\n", "cp a b |": ":4\n",
		"capture |": "web\n", "capture web |": "on\noff\n:4\n", "image rm |": "builtin\n:4\n",
		"run |": "builtin\n", "run b|": "builtin\n:4\n", "run builtin |": ":0\n", "warm |": "builtin\n", "create |": ":4\n", "create new |": "builtin\n", "image pull |": "builtin\n",
		"pause |": "web\n", "resume |": "web\n", "job input |": "web\n",
		"policy show |": "web\n", "policy show w|": "web\n:4\n", "policy show py|": "pypi\n", "policy show ./x|": ":0\n", "policy explain w|": "web\n:4\n",
		"policy diff web |": "web\n", "run --floor |": "toml\n:8\n",
	} {
		line := strings.TrimSuffix(args, "|")
		words := append([]string{"__complete"}, strings.Fields(line)...)
		if strings.HasSuffix(line, " ") || !strings.Contains(line, " ") {
			words = append(words, "")
		}
		if got := msb(t, env, words...); got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("%q: %+v, want %q", words, got, want)
		}
	}
}
