package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// TestToolsReadWhatTheirSchemasName: each property is understood, and each is one that a schema check can read.
func TestToolsReadWhatTheirSchemasName(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	for _, tool := range append(p.tools(), p.moreTools()...) {
		s := tool.schema()
		if s.Type != "object" || tool.properties != "" && len(s.Properties) == 0 {
			t.Errorf("%s: a schema that can't be read: %s", tool.name, tool.properties)
		}
		for name := range s.Properties {
			_, err := tool.call(t.Context(), json.RawMessage(`{"`+name+`":null}`))
			if err != nil && strings.Contains(err.Error(), "unknown field") {
				t.Errorf("%s: %s is in the schema, and the tool says %v", tool.name, name, err)
			}
		}
	}
}

// eachRequired calls use with the place of each required field, nested ones too, and arguments that lack it.
func eachRequired(s *schema, use func(field string, lacking any)) {
	whole := sampleOf(s).(map[string]any)
	for _, name := range s.Required {
		for _, null := range []bool{false, true} {
			lacking := sampleOf(s).(map[string]any)
			delete(lacking, name)
			if null {
				lacking[name] = nil
			}
			use(name, lacking)
		}
	}
	for name, p := range s.Properties {
		if p.Items != nil && p.Items.Properties != nil {
			eachRequired(p.Items, func(field string, lacking any) {
				whole[name] = []any{sampleOf(p.Items), lacking}
				use(field, whole)
			})
		}
	}
}

// sampleOf is a value of the schema's type with all of its required fields.
func sampleOf(s *schema) any {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[0]
	case s.Type == "array":
		return []any{sampleOf(s.Items)}
	case s.Type == "object":
		o := map[string]any{}
		for _, name := range s.Required {
			o[name] = sampleOf(s.Properties[name])
		}
		return o
	case s.Type == "string":
		return "/x"
	}
	return 1
}

// TestI12_MissingArgumentsAreRefused: one that is missing, or null, is never taken for an empty one.
func TestI12_MissingArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	p := serve(t, func(o *Options) { o.Tools = []string{AllTools} })
	n := 0
	for _, tool := range append(p.tools(), p.moreTools()...) {
		eachRequired(tool.schema(), func(field string, lacking any) {
			n++
			p.says(t, true, tool.name, lacking, "wrong arguments: "+field+" is missing", "it takes")
		})
	}
	if n < 40 || len(p.fake.running) > 0 {
		t.Errorf("%d calls, %d sandboxes started", n, len(p.fake.running))
	}
	p.says(t, false, "fs_write", m{"files": []m{{"path": "/a", "content": "kept"}}})
	p.says(t, true, "fs_write", m{"files": []m{{"path": "/b", "content": ""}, {"path": "/a"}}}, "content is missing in files[1]")
	p.says(t, true, "fs_append", m{"path": "/a"}, "content is missing")
	files := p.fake.running["default"].files
	if _, there := files["/b"]; there || files["/a"] != "kept" {
		t.Errorf("%v", files)
	}
}

// TestWrongArgumentsAreNamed with what there is instead.
func TestWrongArgumentsAreNamed(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for _, c := range []struct {
		tool string
		args any
		want string
	}{
		{"sandbox_exec", m{"cmd": "ls"}, `unknown field "cmd"; it takes argv, command, cwd, env, sandbox, stdin, timeout`},
		{"sandbox_exec", m{"Command": "ls"}, `unknown field "Command"`},
		{"sandbox_run_code", m{"language": "python", "code": "1"}, `unknown field "code"; it takes steps: [{language, code}]; and may take cwd`},
		{"fs_write", m{"path": "/a", "content": "b"}, "it takes files: [{path, content; and may take base64, executable}]; and may take sandbox"},
		{"fs_write", m{"files": []m{{"path": "/a", "text": "b"}}}, `unknown field "text" in files[0]; it takes path, content`},
		{"network", m{"action": "explain", "host": "x"}, `unknown field "host"; it takes action; and may take method, methods, path, request, sandbox, to, why`},
		{"sandbox_list", m{"all": true}, `unknown field "all"; it takes no arguments`},
		{"sandbox_list", []int{1}, "arguments is a JSON array, and has to be an object"},
		{"sandbox_create", m{"name": "x", "memory_mb": 512.5}, "memory_mb is a JSON number 512.5, and has to be a whole number"},
		{"sandbox_create", m{"name": "x", "cpus": uint64(1) << 63}, "cpus"},
		{"sandbox_exec", m{"command": "x", "env": m{"A": 1}}, "env.A is a JSON number 1, and has to be a string"},
		{"sandbox_exec", m{"command": "x", "env": m{"A": nil}}, "env.A is a JSON null, and has to be a string"},
		{"sandbox_exec", m{"argv": []any{"x", nil}}, "argv[1] is a JSON null, and has to be a string"},
		{"network", m{"action": 1}, "action is 1; it is explain, denied, request or answer"},
		{"sandbox_exec", m{"command": "x", "timeout": 0}, "timeout 0: give it more than 0"},
	} {
		p.says(t, true, c.tool, c.args, "wrong arguments", c.want)
	}
}

func TestUnknownToolsGetTheList(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	_, err := p.client.CallTool(t.Context(), &sdk.CallToolParams{Name: "exec"})
	if err == nil || !strings.Contains(err.Error(), `unknown tool "exec"; there are sandbox_run, `) || strings.Contains(err.Error(), "fs_stat") {
		t.Errorf("%v", err)
	}
}
