package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheSkillNamesWhatThereIs: tools, properties and values of the schemas, and the server's times.
func TestTheSkillNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../skills/msb/SKILL.md")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, nil)
	known := map[string]bool{"msb": true, "default": true}
	for _, tool := range p.tools() {
		known[tool.name] = true
		for _, word := range regexp.MustCompile(`"([a-z_]+)"`).FindAllStringSubmatch(tool.properties, -1) {
			known[word[1]] = true
		}
	}
	named := regexp.MustCompile("`([^`]*)`|\\b([a-z]+_[a-z_]+)\\b").FindAllStringSubmatch(string(page), -1)
	if len(named) < 20 {
		t.Errorf("%d names found", len(named))
	}
	for _, m := range named {
		if name := m[1] + m[2]; !known[name] {
			t.Errorf("the skill names %q: no tool has it", name)
		}
	}
	for _, says := range []string{
		fmt.Sprintf("takes longer than %.0f s goes on", patience.Seconds()),
		fmt.Sprintf("ends after %.0f s; give `timeout` for more, up to %.0f", defaultTimeout.Seconds(), maxTimeout.Seconds()),
		"[untrusted sandbox output", "network policy: ",
	} {
		if !strings.Contains(string(page), says) {
			t.Errorf("the skill doesn't say %q", says)
		}
	}
}

// TestDocumentedCallsWork, in their order.
func TestDocumentedCallsWork(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	p := serve(t, nil)
	calls := regexp.MustCompile(`(?m)^([a-z_]+) (\{.*\})$`).FindAllStringSubmatch(string(page), -1)
	if len(calls) < 2 {
		t.Errorf("%d calls found", len(calls))
	}
	for _, c := range calls {
		var args m
		if err := json.Unmarshal([]byte(c[2]), &args); err != nil {
			t.Fatalf("%s: %v", c[0], err)
		}
		if args["image"] != nil {
			args["image"] = "builtin" // no registry is asked
		}
		p.says(t, false, c[1], args)
	}
}
