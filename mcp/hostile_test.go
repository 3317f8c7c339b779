package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/msb-project/msb/sandbox"
)

// leaf is a place in a tool's arguments: keys, and "[]" for the items of an array.
type leaf struct {
	way  []string
	kind string // of JSON; "" for an enum
}

// leaves are all places of a schema.
func leaves(schema map[string]any, way []string) []leaf {
	kind, _ := schema["type"].(string)
	all := []leaf{{slices.Clone(way), kind}}
	if items, ok := schema["items"].(map[string]any); ok {
		all = append(all, leaves(items, append(way, "[]"))...)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		all = append(all, leaves(values, append(way, "KEY"))...)
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		all = append(all, leaves(properties[name].(map[string]any), append(way, name))...)
	}
	return all
}

// variants is how many values a tool's own enum has at most: what it does depends on it.
func variants(schema map[string]any) int {
	most := 1
	properties, _ := schema["properties"].(map[string]any)
	for _, p := range properties {
		enum, _ := p.(map[string]any)["enum"].([]any)
		most = max(most, len(enum))
	}
	return most
}

// sample is a value of the name that fits a schema, with at the place at; nil leaves it as it is. variant chooses from
// enums.
func sample(name string, schema map[string]any, variant int, at []string, with any) any {
	if at != nil && len(at) == 0 {
		return with
	}
	next := func(key string) []string {
		if len(at) > 0 && at[0] == key {
			return append([]string{}, at[1:]...)
		}
		return nil
	}
	if enum, ok := schema["enum"].([]any); ok {
		return enum[variant%len(enum)]
	}
	switch schema["type"] {
	case "object":
		object := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		required := fmt.Sprint(schema["required"])
		for name, p := range properties {
			if len(at) > 0 && at[0] == name || strings.Contains(required, name) {
				object[name] = sample(name, p.(map[string]any), variant, next(name), with)
			}
		}
		if key := "KEY"; len(at) > 0 && at[0] == key {
			if text, ok := with.(string); ok {
				object[text] = "value"
			}
			object[key] = with
		}
		return object
	case "array":
		return []any{sample("", schema["items"].(map[string]any), variant, next("[]"), with)}
	case "string":
		if name == "sandbox" || name == "name" {
			return "made"
		}
		return "/a"
	}
	return 1
}

// hostileValues are for every place of every tool. canary names a file of this machine, registry an address of it.
func hostileValues(canary, registry string) []any {
	all := []any{
		nil, true, 0, -1, 1.5, 1e300, int64(-1) << 63, []any{}, map[string]any{}, []any{[]any{1}}, map[string]any{"a": map[string]any{}}, json.RawMessage("1e99999"),
		"", " ", ".", "..", "/", "//", "../..", "../../../../../../../../etc/passwd", "/proc/self/root" + canary, "/../../" + canary, canary, filepath.Dir(canary),
		"-flag", "--", "-rf", "-", "~", "~root", "$HOME", "$(cat " + canary + ")", "`id`", "a;b", "a|b", "a\nb", "\x00", "/a\x00b", "/a/\u202egnp.exe", "\x1b]0;title\a\x1b[2J", "\u009b31m", "\u200b\ufeff\U000e0041",
		"[end 000000000000]", "\xff\xfe", strings.Repeat("a", 2*maxWords), "/" + strings.Repeat("a/", 1<<13), strings.Repeat("\x01", 1<<13), strings.Repeat("\u2028", 1<<13),
		"file://" + canary, "dir:" + filepath.Dir(canary), "oci:" + filepath.Dir(canary), "docker-archive:" + canary, "http://" + registry + "/x", "https://" + registry, "docker://" + registry + "/x:1", registry + "/x:1", registry,
		"localhost:" + registry[strings.LastIndex(registry, ":")+1:] + "/x", "[::1]:80", "169.254.169.254/latest:1", "10.0.0.1:5000/x", "192.168.0.1:99999", "0.0.0.0:0", "host:-1", "host:65536", "::::", "*", "*.*", "a..b", "xn--", "Ⓐ.example", "user:pw@host:1",
		"call-1", "call-", "default", "version = 1\n[secrets.X]\nfrom = \"file:" + canary + "\"\nhosts = [\"a.example\"]\nin = [\"basic\"]", "version = 1\ninclude = [\"" + canary + "\"]",
	}
	return all
}

// TestI12_EveryArgumentMayBeHostile: each tool gets each hostile value at each place of its input schema. It answers with
// a bounded text that hides nothing, and neither a file of this machine nor an address is opened for it. A place that a
// value doesn't fit is refused, so that most never come as far.
func TestI12_EveryArgumentMayBeHostile(t *testing.T) {
	t.Parallel()
	canary := filepath.Join(t.TempDir(), "canary")
	const secret = "what-only-this-machine-knows"
	if err := os.WriteFile(canary, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var dialled atomic.Int64
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			_ = c.Close()
		}
	}()
	defer func() { _ = listener.Close() }()
	shared := t.TempDir()
	p := serve(t, func(o *Options) {
		o.Tools, o.Sandboxes, o.Images = []string{AllTools}, 100, []string{"python:3.12"}
		o.Directories = []sandbox.Directory{{Host: shared, Guest: "/shared", Writable: true}}
	})
	tools := append(p.tools(), p.moreTools()...)
	places := 0
	for _, tool := range tools {
		text, err := json.Marshal(tool.tool().InputSchema)
		var schema map[string]any
		if err = errors.Join(err, json.Unmarshal(text, &schema)); err != nil {
			t.Fatal(err)
		}
		call := p.handler(tool)
		for _, place := range leaves(schema, nil) {
			for variant := range variants(schema) {
				places++
				for i, value := range hostileValues(canary, listener.Addr().String()) {
					if text, ok := value.(string); ok && (place.kind != "string" && i%8 > 0 || len(text) > 1<<16 && variant > 0) {
						continue // no text fits, and one is refused like another
					}
					args, err := json.Marshal(sample("", schema, variant, append([]string{}, place.way...), value))
					where := fmt.Sprintf("%s %v: %.100q", tool.name, place.way, args)
					r, callErr := call(t.Context(), &sdk.CallToolRequest{Params: &sdk.CallToolParamsRaw{Arguments: args}})
					if err = errors.Join(err, callErr); err != nil || len(r.Content) != 1 {
						t.Fatalf("%s: %v", where, err)
					}
					text := r.Content[0].(*sdk.TextContent).Text
					if len(text) > 2*outputBudget {
						t.Errorf("%s: an answer of %d bytes", where, len(text))
					}
					if i := strings.IndexFunc(text, hides); i >= 0 {
						t.Errorf("%s: %q hides something", where, text[max(0, i-50):min(len(text), i+50)])
					}
					if strings.Contains(text, secret) {
						t.Errorf("%s: tells what is in a file of this machine: %.200s", where, text)
					}
				}
			}
		}
	}
	if places < 100 {
		t.Errorf("%d places in %d tools: is the schema read?", places, len(tools))
	}
	if n := dialled.Load(); n > 0 {
		t.Errorf("an address of this machine was dialled %d times", n)
	}
	if b, err := os.ReadFile(canary); err != nil || string(b) != secret {
		t.Errorf("the file of this machine: %q, %v", b, err)
	}
	all, err := p.opts.Home.List()
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if sandbox.CheckName(all[i].Name) != nil || all[i].Label != p.label {
			t.Errorf("a sandbox %q was made", all[i].Name)
		}
	}
	for _, cfg := range p.fake.runs {
		if len(cfg.Directories) != 1 || cfg.Floor != p.opts.Floor || strings.Contains(cfg.Image, canary) {
			t.Errorf("a run with %+v", cfg)
		}
	}
}

// hides reports characters that a reader doesn't see, or that act on a terminal.
func hides(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.Is(unicode.Zs, r) && !unicode.IsPrint(r)
}

// TestLogsNeverHoldCallsUp: nobody reads the log, and lines of it are dropped: a pipe would have taken the first one alone.
func TestLogsNeverHoldCallsUp(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	log := slog.New(slog.NewTextHandler(NewLog(w), nil))
	for range 10 * maxLogLines {
		log.Info("a line")
	}
	b := make([]byte, 1000)
	if n, err := r.Read(b); err != nil || !strings.Contains(string(b[:n]), "a line") {
		t.Errorf("%q, %v", b[:n], err)
	}
	_ = r.Close()
}
