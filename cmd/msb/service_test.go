package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// hostileWords are what shells and units could take for something else.
var hostileWords = []string{"", " a  b ", "'", `"`, `\`, `\n`, "a\nb\tc", "$HOME", "${x}", "`id`", "$(id)", "*", "~", "-x", "--", ";", "&", "|", "#", "%h", "%%", "!", "é\u202e", "\x01\x7f"}

// unit is what systemd makes of a unit: the command, with its variables put in, and its environment.
type unit struct{ env, argv []string }

// parseUnit does as systemd.service(5) says: words are unquoted and specifiers put in, and in all words of a command but
// the first variables.
func parseUnit(t *testing.T, text string) (u unit) {
	t.Helper()
	for line := range strings.Lines(text) {
		switch key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "="); key {
		case "Environment":
			u.env = append(u.env, unitWords(t, value)...)
		case "ExecStart":
			u.argv = unitWords(t, value)
			for i, word := range u.argv[1:] {
				if rest := strings.ReplaceAll(word, "$$", ""); strings.Contains(rest, "$") {
					t.Errorf("%q has a variable put in", word)
				}
				u.argv[1+i] = strings.ReplaceAll(word, "$$", "$")
			}
		}
	}
	return u
}

func unitWords(t *testing.T, line string) (words []string) {
	t.Helper()
	var word []byte
	in, quoted := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"':
			in, quoted = true, !quoted
		case c == ' ' && !quoted:
			if in {
				words = append(words, string(word))
			}
			word, in = nil, false
		case c == '\\' && line[i+1] == 'x':
			n, err := strconv.ParseUint(line[i+2:i+4], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			word = append(word, byte(n))
			i += 3
		case c == '\\':
			word = append(word, line[i+1])
			i++
		case c == '%' && line[i+1] != '%':
			t.Fatalf("specifier %q", line[i:i+2])
		case c == '%':
			word = append(word, c)
			i++
		default:
			word, in = append(word, c), true
		}
	}
	if in {
		words = append(words, string(word))
	}
	return words
}

// aService makes a sandbox that never starts, in a home whose path is hostile to units.
func aService(t *testing.T) (env []string) {
	t.Helper()
	home := filepath.Join(t.TempDir(), `50% of $HOME "x\y`)
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	env = []string{sandbox.EnvHome + "=" + home, "MSB_LIBDIR="}
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := msb(t, env, "create", "--disk", "64M", "web", "dir:"+root); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	return env
}

func TestServicesRunTheGivenCommand(t *testing.T) {
	t.Parallel()
	env := aService(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, argv := range [][]string{nil, hostileWords} {
		args := []string{"service", "web"}
		want := []string{self, "start", "--foreground", "web"}
		if argv != nil {
			args, want = slices.Concat(args, []string{"--"}, argv), slices.Concat(want, []string{"--"}, argv)
		}
		got := msb(t, env, args...)
		u := parseUnit(t, got.out)
		if got.code != 0 || !reflect.DeepEqual(u.argv, want) || !reflect.DeepEqual(u.env, env[:1]) {
			t.Errorf("%+v\nruns %q\nwant %q\nwith %q", got, u.argv, want, u.env)
		}
		verifyUnit(t, got.out)
	}
	for say, args := range map[string][]string{
		"no such sandbox": {"service", "nosuch"}, "put the command behind --": {"service", "web", "ls"}, "name the sandbox": {"service"},
		"is for one sandbox": {"start", "--foreground", "a", "b"}, "is for --foreground": {"start", "web", "--", "ls"},
	} {
		if got := msb(t, env, args...); got.code == 0 || !strings.Contains(got.err, say) || got.out != "" {
			t.Errorf("%q: %+v; want %q", args, got, say)
		}
	}
}

// verifyUnit has systemd read a unit, where there is systemd.
func verifyUnit(t *testing.T, text string) {
	t.Helper()
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("without systemd-analyze nothing but this test has read the unit")
		return
	}
	path := filepath.Join(t.TempDir(), "msb-web.service")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), verify, "verify", "--user", "--man=no", path)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "msb-web") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
