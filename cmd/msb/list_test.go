package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/msb-project/msb/sandbox"
)

// isList tells whether a command lists something: by its name, by what it says of itself, or by a flag.
func isList(c *cobra.Command) bool {
	return slices.Contains([]string{"ls", "prune", "presets", "history", "top", "stats"}, c.Name()) ||
		strings.HasPrefix(c.Short, "List ") || c.Flags().Lookup("list") != nil
}

// TestListsHaveFormatAndJSON walks all commands; those that need no sandbox are run on an empty home. What
// msb diff --list prints is a part of its answer, which has --json as a whole.
func TestListsHaveFormatAndJSON(t *testing.T) {
	t.Parallel()
	env := []string{"MSB_HOME=" + t.TempDir()}
	var ran []string
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for _, below := range c.Commands() {
			look(below)
		}
		if !isList(c) || c.HasSubCommands() || c.CommandPath() == "msb diff" {
			return
		}
		for _, flag := range []string{"json", "format"} {
			if c.Flags().Lookup(flag) == nil {
				t.Errorf("%s has no --%s", c.CommandPath(), flag)
			}
		}
		if strings.HasSuffix(c.Name(), "prune") && c.Flags().Lookup("dry-run") == nil {
			t.Errorf("%s has no --dry-run", c.CommandPath())
		}
		words := strings.Fields(c.CommandPath())[1:]
		if c.Flags().Lookup("list") != nil {
			words = append(words, "--list")
		} else if c.ValidateArgs(nil) != nil {
			return // it lists what belongs to a sandbox
		}
		if c.Flags().Lookup("no-stream") != nil {
			words = append(words, "--no-stream")
		}
		got := msb(t, env, append(words, "--json")...)
		var all []map[string]any
		if err := json.Unmarshal([]byte(got.out), &all); err != nil || got.code != 0 || got.err != "" || all == nil {
			t.Errorf("%q --json: %v, %+v", words, err, got)
		}
		if got := msb(t, env, append(words, "--format", "x{{json .}}")...); got.code != 0 || strings.Count(got.out, "x{") != len(all) {
			t.Errorf("%q --format: %+v, want %d lines", words, got, len(all))
		}
		if got := msb(t, env, append(words, "--format", "{{.")...); got.code == 0 {
			t.Errorf("%q takes what is no template: %+v", words, got)
		}
		ran = append(ran, strings.Join(words, " "))
	}
	look(newRoot(newUI(io.Discard, io.Discard)))
	for _, must := range []string{"ls", "policy presets", "policy trust --list", "cache prune", "image prune", "volume ls"} {
		if !slices.Contains(ran, must) {
			t.Errorf("%s was not run, but %q", must, ran)
		}
	}
}

// TestListsAreLists: where --json and its like would be left unread, they are refused.
func TestListsAreLists(t *testing.T) {
	t.Parallel()
	file := write(t, "policy.toml", "version = 1\n")
	for _, words := range [][]string{{"policy", "presets", "npm"}, {"policy", "trust", file}, {"policy", "trust", "--show", file}} {
		if got := msb(t, nil, append(words, "--json")...); got.code != exitOther || got.out != "" {
			t.Errorf("%q --json: %+v", words, got)
		}
	}
}

// TestFormatsAreDockers: \t and \n stand for what they say, and table puts headings above aligned columns.
func TestFormatsAreDockers(t *testing.T) {
	t.Parallel()
	type row struct {
		Name string `json:"name"`
		Size int    `json:"size_bytes"`
		Info struct {
			Kernel string `json:"kernel"`
		} `json:"info"`
	}
	all := []row{{"web", 7, struct {
		Kernel string `json:"kernel"`
	}{"6.12"}}, {Name: "longer\tname", Size: 12345}}
	for format, want := range map[string]string{
		`{{.name}}\t{{.size_bytes}}`: "web\t7\nlonger\\x09name\t12345\n",
		`{{.name}}\n-`:               "web\n-\nlonger\\x09name\n-\n",
		`{{printf "%s\n" .name}}.`:   "web\n.\nlonger\\x09name\n.\n",
		`table {{.name}}\t{{.size_bytes}} B\t{{json .info.kernel}}`: "NAME            SIZE BYTES B  KERNEL\nweb             7 B           \"6.12\"\nlonger\\x09name  12345 B       \"\"\n",
		`table`: "OWN\nweb\n", `table{{.name}}`: "tableweb\ntablelonger\\x09name\n",
	} {
		var out bytes.Buffer
		err := printList(newUI(&out, io.Discard), &cobra.Command{}, &listFlags{format: format}, all, func(r *row) string { return r.Name },
			func([]row) [][]string { return [][]string{{"OWN"}, {"web"}} })
		if err != nil || out.String() != want {
			t.Errorf("%s: %v, printed %q, want %q", format, err, out.String(), want)
		}
	}
	var out bytes.Buffer
	if err := printOne(newUI(&out, io.Discard), &cobra.Command{}, "table", &all[0]); err != nil || !strings.Contains(out.String(), `"name": "web"`) {
		t.Errorf("of one: %v, %q", err, out.String())
	}
}

// TestI12_ListsActOnNoTerminal has texts of a guest, and labels of somebody's archive, in a list's template.
func TestI12_ListsActOnNoTerminal(t *testing.T) {
	t.Parallel()
	all := []sandbox.Snapshot{{Name: "a", Labels: map[string]string{"\x1b]0;key\a": "\x1b[2Jvalue", "plain": "text"}}}
	for _, format := range []string{"{{.labels}}", "{{range $k, $v := .labels}}{{$k}}={{$v}}{{end}}", "{{index .labels \"plain\"}} {{.labels}}"} {
		c := &cobra.Command{}
		flags := &listFlags{}
		flags.register(c)
		if err := c.ParseFlags([]string{"--format", format}); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := printList(newUI(&out, io.Discard), c, flags, all, func(s *sandbox.Snapshot) string { return s.Name }, nil); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(), "\x1b\a") || !strings.Contains(out.String(), "text") {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}
