package mcp

import (
	"context"
	"encoding/json"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolSpec is one tool. Its description and schema are part of every conversation, so they are short.
type toolSpec struct {
	name, title, description string
	properties               string // of the input schema
	required                 []string
	// readOnly, destructive, idempotent and open are the annotations. What may make or start a sandbox is not readOnly.
	readOnly, destructive, idempotent, open bool
	// ends is for tools that stop or remove a sandbox, and name it.
	ends bool
	// foreign is for tools of lists whose "sandbox" isn't one of our names.
	foreign bool
	// always is for tools that clients should load in every conversation; they find the others by hint.
	always bool
	hint   string
	// mostChars is the size of results that a tool announces to clients; 0 for the usual one.
	mostChars int
	call      func(ctx context.Context, args json.RawMessage) (string, error)
}

// takesSandbox reports whether a call names an existing sandbox.
func (t *toolSpec) takesSandbox() bool { return strings.Contains(t.properties, `"sandbox":`) }

func (t *toolSpec) tool() *sdk.Tool {
	schema := map[string]any{"type": "object", "additionalProperties": false, "properties": json.RawMessage("{" + t.properties + "}")}
	if len(t.required) > 0 {
		schema["required"] = t.required
	}
	meta := sdk.Meta{}
	if t.always {
		meta["anthropic/alwaysLoad"] = true
	} else {
		meta["anthropic/searchHint"] = t.hint
	}
	if t.mostChars > 0 {
		meta["anthropic/maxResultSizeChars"] = t.mostChars
	}
	return &sdk.Tool{
		Meta: meta, Name: t.name, Title: t.title, Description: t.description, InputSchema: schema,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: t.readOnly, DestructiveHint: &t.destructive, IdempotentHint: t.idempotent, OpenWorldHint: &t.open},
	}
}

// Properties that several tools have.
const (
	propSandbox = `"sandbox":{"type":"string","description":"name; default: \"default\", made by itself"}`
	propNamed   = `"sandbox":{"type":"string"}`
	propProgram = `"command":{"type":"string","description":"shell line, run by /bin/sh -c"},` +
		`"argv":{"type":"array","items":{"type":"string"},"description":"instead of command: program and arguments, no shell"},` +
		`"cwd":{"type":"string","description":"absolute path"},` +
		`"env":{"type":"object","additionalProperties":{"type":"string"}},` +
		`"stdin":{"type":"string"},` + propTimeout
	propTimeout = `"timeout":{"type":"number","description":"seconds, default 60, at most 600"}`
	propMachine = `"image":{"type":"string","description":"OCI image, e.g. python:3.12; default: the operator's. Only cached or permitted images"},` +
		`"cpus":{"type":"integer"},"memory_mb":{"type":"integer","description":"default 512"},` +
		`"allow":{"type":"array","items":{"type":"string"},"description":"destinations, e.g. pypi.org:443; narrows the operator's policy, never widens it; [] allows none. Secrets stay where their hosts do"},` +
		`"policy":{"type":"string","description":"msb policy file as TOML; same limits"}`
	propPath = `"path":{"type":"string","description":"absolute path in the sandbox"}`
)

// tools are the default tools, in the order of their use.
func (s *server) tools() []toolSpec {
	machine := propMachine
	if s.hasToolset("volumes") {
		machine += `,"volumes":{"type":"array","items":{"type":"string"},"description":"NAME:/path or NAME:/path:ro, of volume_create"}`
	}
	return []toolSpec{
		{
			name: "sandbox_run", title: "Run once in a fresh sandbox", always: true, open: true, call: s.sandboxRun,
			description: "Run one program in a new microVM that is thrown away afterwards. Returns exit code, output and what the network policy denied.",
			properties:  propProgram + "," + machine,
		},
		{
			name: "sandbox_create", title: "Make a sandbox", open: true, hint: "new microVM image cpus memory network policy", call: s.sandboxCreate,
			description: "Make and start a named sandbox that keeps its files until it is removed. Not needed for the default sandbox.",
			properties:  `"name":{"type":"string","description":"lower-case letters, digits, hyphens"},` + machine, required: []string{"name"},
		},
		{
			name: "sandbox_list", title: "List sandboxes", readOnly: true, idempotent: true, hint: "which sandboxes exist, running, image", call: s.sandboxList,
			description: "List the sandboxes with state, image and resources, the images there are, and the operator's bounds, as JSON.",
		},
		{
			name: "sandbox_exec", title: "Run in a sandbox", always: true, destructive: true, open: true, call: execTools{s}.sandboxExec,
			description: "Run a program in a sandbox that stays; starts it if needed. Returns exit code, stdout and stderr; a long output is shortened in its middle. Each call is a new process: cd does not persist, stdin is empty unless given. Use job for servers and for what takes longer than its timeout.",
			properties:  propSandbox + "," + propProgram,
		},
		{
			name: "sandbox_run_code", title: "Run code in a sandbox", destructive: true, open: true, hint: "python node bash ruby perl go snippet script", call: execTools{s}.sandboxRunCode,
			description: "Run pieces of code in a sandbox, in order, until one fails. Each is a program of its own; files stay. Languages are those of the image.",
			properties: propSandbox + `,"steps":{"type":"array","minItems":1,"maxItems":16,"items":{"type":"object","additionalProperties":false,"required":["language","code"],"properties":{` +
				`"language":{"enum":["python","py","node","javascript","js","sh","shell","bash","ruby","perl","php","lua","go"]},"code":{"type":"string"}}}},"cwd":{"type":"string","description":"absolute path"},` + propTimeout,
			required: []string{"steps"},
		},
		{
			name: "sandbox_stop", title: "Stop or remove a sandbox", destructive: true, idempotent: true, hint: "stop shut down delete remove sandbox", ends: true, call: s.sandboxStop,
			description: "Stop a sandbox; its files stay for the next start. With remove: true it is deleted with its files.",
			properties:  propSandbox + `,"remove":{"type":"boolean"}`,
		},
		{
			name: "fs_read", title: "Read a file", idempotent: true, always: true, mostChars: maxReadChars, call: s.files.fsRead,
			description: "Read a file of a sandbox. Text is escaped where it could act on a terminal; other content comes as base64.",
			properties:  propSandbox + "," + propPath + `,"offset":{"type":"integer","description":"first byte"},"length":{"type":"integer","description":"bytes, default 32000, at most 96000"}`,
			required:    []string{"path"},
		},
		{
			name: "fs_write", title: "Write files", destructive: true, idempotent: true, always: true, call: s.files.fsWrite,
			description: "Write files into a sandbox. Missing directories are made; a file that exists is replaced.",
			properties: propSandbox + `,"files":{"type":"array","minItems":1,"maxItems":256,"items":{"type":"object","additionalProperties":false,"required":["path","content"],"properties":{` +
				propPath + `,"content":{"type":"string"},"base64":{"type":"boolean","description":"content is base64"},"executable":{"type":"boolean"}}}}`,
			required: []string{"files"},
		},
		{
			name: "fs_list", title: "List a directory", idempotent: true, hint: "ls directory files sizes", call: s.files.fsList,
			description: "List a directory of a sandbox: type, size and name of each entry.",
			properties:  propSandbox + "," + propPath, required: []string{"path"},
		},
		{
			name: "job", title: "Background jobs", destructive: true, open: true, hint: "background process server daemon logs kill", call: s.jobs.job,
			description: "Programs that run on in a sandbox. start: run one; stdin: true for one that takes input. list. logs: output from cursor on, and the next cursor. input: data for its stdin. wait: for its end, or for the result of a call that went on. kill: SIGTERM, or SIGKILL with force. remove: delete one that ended.",
			properties: `"action":{"enum":["start","list","logs","input","wait","kill","remove"]},"job":{"type":"string","description":"job name; start may leave it out"},"cursor":{"type":"integer","description":"of logs; -1000: the last 1000 bytes"},"force":{"type":"boolean"},"stdin":{"type":"boolean"},"data":{"type":"string"},"eof":{"type":"boolean","description":"end stdin behind data"},` +
				propSandbox + `,"command":{"type":"string"},"argv":{"type":"array","items":{"type":"string"}},"cwd":{"type":"string"},"env":{"type":"object","additionalProperties":{"type":"string"}}`,
			required: []string{"action"},
		},
		{
			name: "network", title: "Explain the network policy, ask for more", open: true, hint: "connection refused denied firewall policy egress allow request", call: s.network,
			description: "explain: would this destination be allowed, and by which rule (nothing is sent). denied: what the policy refused, and why. request: ask the operator for https to a host; they decide. answer: wait for what they say; without request, list.",
			properties: `"action":{"enum":["explain","denied","request","answer"]},"sandbox":{"type":"string"},"to":{"type":"string","description":"e.g. api.github.com:443; for explain also time.example:123/udp"},` +
				`"method":{"type":"string","description":"HTTP method, e.g. POST"},"path":{"type":"string","description":"HTTP path"},` +
				`"methods":{"type":"array","items":{"type":"string"},"description":"of request; none: all"},"why":{"type":"string","description":"of request, for the operator"},"request":{"type":"string","description":"of answer"}`,
			required: []string{"action"},
		},
		{
			name: "check_installed", title: "Check for programs", idempotent: true, hint: "which program is available python git installed", call: execTools{s}.checkInstalled,
			description: "Which of these programs a sandbox has, and where.",
			properties:  propSandbox + `,"programs":{"type":"array","minItems":1,"maxItems":64,"items":{"type":"string"}}`, required: []string{"programs"},
		},
	}
}
