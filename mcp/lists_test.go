package mcp

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// withList is a server with a list of another server's tools.
func withList(t *testing.T, list string, change func(*Options)) *playground {
	t.Helper()
	return serve(t, func(o *Options) {
		o.Tools = []string{list}
		if change != nil {
			change(o)
		}
	})
}

// TestListsAreTheirServers, name by name and parameter by parameter, with types and what is required.
func TestListsAreTheirServers(t *testing.T) {
	t.Parallel()
	for _, list := range Lists() {
		text, err := os.ReadFile(filepath.Join("testdata/lists", list+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Source string                       `json:"source"`
			Tools  map[string]map[string]string `json:"tools"`
		}
		if err := json.Unmarshal(text, &want); err != nil || want.Source == "" {
			t.Fatalf("%s: %v, source %q", list, err, want.Source)
		}
		p := withList(t, list, nil)
		r, err := p.client.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]map[string]string{}
		for _, tool := range r.Tools {
			raw, err := json.Marshal(tool.InputSchema)
			s := new(schema)
			if err == nil {
				err = json.Unmarshal(raw, s)
			}
			if err != nil {
				t.Fatal(err)
			}
			got[tool.Name] = map[string]string{}
			flatten(got[tool.Name], "", s)
			if tool.Title == "" || tool.Description == "" || tool.Annotations == nil {
				t.Errorf("%s: %s has no title, description or annotations", list, tool.Name)
			}
			p.says(t, true, tool.Name, m{"no_such": 1}, "no_such")
		}
		for _, name := range slices.Sorted(maps.Keys(want.Tools)) {
			if !maps.Equal(got[name], want.Tools[name]) {
				t.Errorf("%s: %s has %v, and in its server %v", list, name, got[name], want.Tools[name])
			}
		}
		if len(got) != len(want.Tools) || len(r.Tools) != len(got) {
			t.Errorf("%s: %d tools of %d names, %d in its server", list, len(r.Tools), len(got), len(want.Tools))
		}
	}
}

// flatten writes the fields of a schema with their types: a "!" behind one that is required, "[]" behind an array's.
func flatten(into map[string]string, at string, s *schema) {
	for name, p := range s.Properties {
		mark := ""
		if slices.Contains(s.Required, name) {
			mark = "!"
		}
		into[at+name+mark] = typeOf(p)
		flatten(into, at+name+".", p)
		if p.Items != nil {
			if p.Items.Properties == nil {
				into[at+name+"[]"] = typeOf(p.Items)
			}
			flatten(into, at+name+"[].", p.Items)
		}
	}
}

func typeOf(p *schema) string {
	switch {
	case len(p.Enum) > 0:
		return strings.Join(p.Enum, "|")
	case p.Type == "object" && p.Properties == nil:
		return "map"
	}
	return p.Type
}

func TestListsStandAlone(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	for _, list := range Lists() {
		for _, with := range append(Lists(), "files", AllTools) {
			if _, err := (Options{Home: home, Tools: []string{list, with}}).Check(); err == nil || !strings.Contains(err.Error(), "stands alone") {
				t.Errorf("%s beside %s: %v", list, with, err)
			}
		}
		floor := policy(t, "[agent]\ntools = [\"files\", \""+list+"\"]\n")
		if _, err := (Options{Home: home, Floor: floor}).Check(); err == nil || !strings.Contains(err.Error(), "agent.tools: ") {
			t.Errorf("[agent] with %s and files, of which none is chosen: %v", list, err)
		}
		o := Options{Home: home, Floor: floor, Tools: []string{list}}
		if err := o.fill(); err != nil || !slices.Equal(o.Tools, []string{list}) {
			t.Errorf("%s, chosen: %v, %v", list, o.Tools, err)
		}
		if _, err := (Options{Home: home, Floor: policy(t, "[agent]\ntools = [\"files\"]\n"), Tools: []string{list}}).Check(); err == nil {
			t.Errorf("%s, which the file doesn't permit, is taken", list)
		}
	}
}

// ours finds names of our own tools and parameters.
var ours = regexp.MustCompile(`\b(sandbox_[a-z_]+|fs_[a-z]+|volume_[a-z]+|check_installed|tool (?:job|network)|with job|memory_mb)\b`)

// speaks wants a text to name no tool but those of the list. What a guest wrote is not looked at.
func (p *playground) speaks(t *testing.T, text string) {
	t.Helper()
	for _, w := range ours.FindAllString(regexp.MustCompile(`(?s)\[untrusted.*?\[end \w+\]`).ReplaceAllString(text, ""), -1) {
		if !slices.ContainsFunc(p.listed(), func(tool toolSpec) bool { return tool.name == w }) {
			t.Errorf("%q names %s, which is not in the list", text, w)
		}
	}
}

// TestListsNameTheirOwnTools in what they say of faults and in what clients are told first. A guest's words stay.
func TestListsNameTheirOwnTools(t *testing.T) {
	t.Parallel()
	for _, list := range Lists() {
		p := withList(t, list, nil)
		p.speaks(t, p.instructions())
		for _, said := range []string{
			p.tooMany().Error(), p.noSuch("x").Error(), p.taken("x").Error(), row(&sandbox.Status{}, "x").Unusable,
			"a command line of 9 bytes; at most 1, so write a file with fs_write and run that", "write what is long into a file with fs_write",
			"give it more than 0 and at most 1 seconds; start what takes longer with job", "ended after 1s, its timeout; give a longer timeout, or start it with job\n",
			"make one with a larger memory_mb", "memory_mb 1: give it", "the rest of the output is gone with the sandbox; sandbox_exec keeps it as a file\n",
			"not started; check_installed says which programs there are", "all of stdout is in /tmp/x; read on with fs_read and its offset\n",
			"x is a directory: fs_list shows what is in it", "x is a file: fs_read reads it", "/x: bytes 0 to 9 of 10; go on with offset 9",
			"network policy: 1 denied; the tool network explains it\n", "start it with sandbox_exec or any other call", "take one that sandbox_list shows",
			"remove sandboxes with sandbox_stop (remove: true), or tell", "use another name, or delete it with its files (sandbox_stop, remove: true)",
			"the directories that the operator shares (/x); use fs_write or fs_read", "or stop it with sandbox_stop", "sandbox is empty; sandbox_list shows their names",
			"sandbox x is larger than the operator allows now; remove it with sandbox_stop (remove: true) and create it again", "sandbox is running; stop it with sandbox_stop first", quietConsole,
			"no such volume: x; make it with volume_create", "no such volume: x; volume_list shows those that there are", "remove one with volume_remove",
			"it is not there, or the operator hides it: sandbox_list shows what is hidden",
		} {
			p.speaks(t, p.spoken(said))
		}
		guest := mark("stdout", 7, "fs_write and [end 0] sandbox_stop (remove: true)")
		if got := p.spoken("fs_read\n" + guest + "fs_read"); !strings.Contains(got, guest) || strings.Count(got, "fs_read") != strings.Count(p.spoken("fs_read"), "fs_read")*2 {
			t.Errorf("what a guest wrote became %q", got)
		}
		if cut := markBegin + "00: stdout, 7 bytes]\nfs_write"; p.spoken(cut) != cut {
			t.Errorf("without an end it became %q", p.spoken(cut))
		}
		if r, err := p.client.ListPrompts(t.Context(), nil); err == nil && len(r.Prompts) > 0 {
			t.Errorf("%s: prompts about other tools: %v", list, r.Prompts[0].Name)
		}
	}
}

// TestListsHoldToTheFloor as our own tools do: policy, bounds, images, sandboxes of others.
func TestI15_ListsHoldToTheFloor(t *testing.T) {
	t.Parallel()
	floor := policy(t, "[egress]\ndefault = \"deny\"\n[[egress.allow]]\nhosts = [\"a.example\"]\nports = [443]\n")
	p := withList(t, listMicrosandbox, func(o *Options) { o.Floor, o.Sandboxes = floor, 2 })
	if err := sandbox.Create(t.Context(), sandbox.Config{Home: p.opts.Home.Dir(), Name: "operators"}); err != nil {
		t.Fatal(err)
	}
	if err := p.opts.Home.Volumes().Create("operators", 64<<20); err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string]m{
		"sandbox_exec": {"command": "id"}, "sandbox_shell": {"command": "id"}, "sandbox_fs_read": {"path": "/etc/passwd"}, "sandbox_fs_write": {"path": "/x", "content": ""},
		"sandbox_fs_list": {"path": "/"}, "sandbox_fs_mkdir": {"path": "/x"}, "sandbox_fs_remove": {"path": "/x"}, "sandbox_fs_stat": {"path": "/"},
		"sandbox_inspect": {}, "sandbox_stop": {}, "sandbox_remove": {"force": true}, "sandbox_metrics": {},
	} {
		args["name"] = "operators"
		p.speaks(t, p.says(t, true, tool, args, "no such sandbox"))
	}
	p.speaks(t, p.says(t, true, "sandbox_create", m{"name": "operators", "image": "builtin"}, "is not yours"))
	p.says(t, true, "volume_remove", m{"name": "operators"}, "no such volume")
	p.says(t, true, "sandbox_create", m{"name": "a", "image": "builtin", "volumes": []m{{"type": "named", "source": "operators", "guestPath": "/v"}}}, "no such volume")
	p.says(t, true, "sandbox_create", m{"name": "a", "image": "builtin", "volumes": []m{{"type": "bind", "source": "/etc", "guestPath": "/v"}}}, "no others")
	for _, a := range []m{{"cpus": 9}, {"memoryMib": 1 << 20}, {"image": "nosuch:1"}, {"image": "/etc/passwd"}, {"maxDuration": -1}, {"hostname": "-"}, {"env": m{"A=B": "c"}}} {
		args := m{"name": "a", "image": "builtin"}
		maps.Copy(args, a)
		p.speaks(t, p.says(t, true, "sandbox_create", args))
	}
	if mine, err := p.mine(); err != nil || len(mine) != 0 {
		t.Errorf("refused calls left %d sandboxes, %v", len(mine), err)
	}
	p.says(t, false, "sandbox_create", m{"name": "a", "image": "builtin"})
	if got, err := p.opts.Home.Policy("a"); err != nil || string(policies.Encode(got)) != string(policies.Encode(floor)) {
		t.Errorf("the policy of a sandbox of the list: %v, %s", err, policies.Encode(got))
	}
	p.says(t, false, "sandbox_create", m{"name": "b", "image": "builtin"})
	p.speaks(t, p.says(t, true, "sandbox_create", m{"name": "c", "image": "builtin"}, "too many sandboxes"))
	p.speaks(t, p.says(t, true, "sandbox_run", m{"image": "builtin", "command": "true"}, "too many sandboxes"))
}

// TestListsWaitForLongCalls: a list has no tool that asks for a call that goes on.
func TestListsWaitForLongCalls(t *testing.T) {
	t.Parallel()
	p := withList(t, listMicrosandbox, nil)
	p.calls.patience = 0
	p.says(t, false, "sandbox_run", m{"image": "builtin", "command": "true"}, "exit code 0")
	if all := p.calls.list(); len(all) != 0 {
		t.Errorf("calls that nobody can ask for: %v", all)
	}
}
