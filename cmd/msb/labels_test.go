package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

func TestListFiltersByLabel(t *testing.T) {
	t.Parallel()
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	for name, labels := range map[string][]string{"a": {"--label", "team=web", "-l", "keep"}, "b": {"--label", "team=db"}, "c": nil} {
		if got := msb(t, env, append(append([]string{"create", "-q", "--disk", "64M"}, labels...), name)...); got.code != 0 {
			t.Fatalf("%+v", got)
		}
	}
	for filters, want := range map[string]string{
		"": "a\nb\nc\n", "--filter label=team": "a\nb\n", "--filter label=team=web": "a\n", "--filter label=team --filter label=keep": "a\n", "--filter label=team=x": "",
	} {
		if got := msb(t, env, append([]string{"ls", "-q"}, strings.Fields(filters)...)...); got.code != 0 || got.out != want {
			t.Errorf("ls %s: %+v, want %q", filters, got, want)
		}
	}
	if got := msb(t, env, "inspect", "a"); !strings.Contains(got.out, `"team": "web"`) {
		t.Errorf("inspect shows no label: %+v", got)
	}
	for _, c := range []struct {
		args, says string // on standard output if code is 0
		code       int
	}{
		{"--format {{.name}}", "a\nb\nc\n", 0}, {"--format {{.name}}={{.disk_bytes}},{{.running}} --filter label=keep", "a=67108864,false\n", 0},
		{"--format {{nosuch}}", "function", exitOther},
		{"--format {{.name}}{{.pcap}} --filter label=keep", "a\n", 0}, {"--format {{.nosuch}}", "--json", exitOther}, {"--format {{.name", "--format '{{.name}}'", exitOther},
		{"--json -q", "give one of them", exitOther}, {"--json --format {{.name}}", "give one of them", exitOther},
	} {
		got := msb(t, env, append([]string{"ls"}, strings.Fields(c.args)...)...)
		if got.code != c.code || c.code == 0 && got.out != c.says || c.code != 0 && !strings.Contains(got.err, c.says) {
			t.Errorf("ls %s: %+v", c.args, got)
		}
	}
	if got := msb(t, env, "ls", "--format", "{{json .labels}}", "--filter", "label=team=db"); got.out != "{\"team\":\"db\"}\n" {
		t.Errorf("%+v", got)
	}
	// The same filters choose sandboxes for commands; none runs, so that stop and restart find none.
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"stop --all", "", 0}, {"restart -a", "", 0}, {"rm --filter label=team=x", "", 0}, {"rm --filter label=team=web", "a\n", 0}, {"ls -q", "b\nc\n", 0},
		{"rm --all b", "", exitOther}, {"rm --all --filter label=team", "", exitOther}, {"rm --filter team", "", exitOther}, {"rm", "", exitOther},
		{"ls -q", "b\nc\n", 0}, {"rm -a", "b\nc\n", 0}, {"ls -q", "", 0},
	} {
		if got := msb(t, env, strings.Fields(c.args)...); got.code != c.code || got.out != c.want {
			t.Errorf("%s: %+v, want %d and %q", c.args, got, c.code, c.want)
		}
	}
}

func TestEnvFilesReadAsInDocker(t *testing.T) {
	t.Setenv("MSB_PASSED", "on")
	file := write(t, "env", "\ufeff# a comment\r\n\n  A=1 2 \"x\"\r\nEMPTY=\nMSB_PASSED\nMSB_NO_SUCH\nB=file\n")
	var f runFlags
	f.env = []string{"B=flag"}
	if err := (envFiles{&f.envOfFiles}).Set(file); err != nil {
		t.Fatal(err)
	}
	if got, want := f.environ(), []string{"A=1 2 \"x\"", "EMPTY=", "MSB_PASSED=on", "B=file", "B=flag"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q: what -e says comes last and counts", got, want)
	}
	for text, say := range map[string]string{"A=1\n=hunter2\n": "line 2 names no variable", "A B=hunter2": "line 1"} {
		if err := (envFiles{&f.envOfFiles}).Set(write(t, "bad", text)); err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v, want %q and no value", text, err, say)
		}
	}
}
