package mcp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// schema is what this program's input schemas use of JSON Schema.
type schema struct {
	Type       string             `json:"type"`
	Enum       []string           `json:"enum"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
	Values     json.RawMessage    `json:"additionalProperties"` // false, or the schema of a map's values
}

// schema is the tool's input schema. An invalid one is a bug of this program, and allows nothing.
func (t *toolSpec) schema() *schema {
	s := &schema{Type: "object", Required: t.required}
	if json.Unmarshal([]byte("{"+t.properties+"}"), &s.Properties) != nil {
		return &schema{}
	}
	return s
}

// check checks a call's arguments against the schema before the tool reads them, so that a missing argument isn't taken for
// an empty one, nor a misspelled one for a default. The tools check lengths themselves.
func (s *schema) check(raw json.RawMessage) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		raw = json.RawMessage("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return wrong("no JSON: %w", err)
	}
	return s.value("", v)
}

// value checks one value. at is where it is, "" for all of the arguments.
func (s *schema) value(at string, v any) error {
	if len(s.Enum) > 0 {
		if text, ok := v.(string); !ok || !slices.Contains(s.Enum, text) {
			return wrong("%s is %s; it is %s or %s", at, printed(shortJSON(v)), strings.Join(s.Enum[:len(s.Enum)-1], ", "), s.Enum[len(s.Enum)-1])
		}
		return nil
	}
	kind := kindOf(v)
	if want, ok := kindNames[s.Type]; !ok || kind != s.Type && (s.Type != "number" || kind != "integer") {
		at = cmp.Or(at, "arguments")
		if n, ok := v.(json.Number); ok {
			kind = "number " + printed(n.String())
		}
		if at == "argv" && kind == "string" {
			return wrong("argv is a JSON string, and has to be an array, such as [\"ls\", \"-l\"]; a shell line is for command")
		}
		return wrong("%s is a JSON %s, and has to be %s", at, kind, want)
	}
	switch v := v.(type) {
	case map[string]any:
		return s.object(at, v)
	case []any:
		for i := range v {
			if err := s.Items.value(fmt.Sprintf("%s[%d]", at, i), v[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *schema) object(at string, v map[string]any) error {
	var values *schema // of a map
	if s.Properties == nil && len(s.Values) > 0 {
		if err := json.Unmarshal(s.Values, &values); err != nil {
			return err
		}
	}
	of := ""
	if at != "" {
		of = " in " + at
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		p := values
		if p == nil {
			p = s.Properties[name]
		}
		if p == nil {
			return wrong("unknown field %q%s; it takes %s", printed(name), of, s.fields())
		}
		if v[name] == nil && values == nil { // null counts as missing
			continue
		}
		inner := printed(name)
		if at != "" {
			inner = at + "." + inner
		}
		if err := p.value(inner, v[name]); err != nil {
			return err
		}
	}
	for _, name := range s.Required {
		if v[name] == nil {
			return wrong("%s is missing%s; it takes %s", name, of, s.fields())
		}
	}
	return nil
}

// fields are the names of an object's fields, the required ones first.
func (s *schema) fields() string {
	if len(s.Properties) == 0 {
		return "no arguments"
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			names = append(names, name)
		}
	}
	names = slices.Concat(s.Required, names)
	for i, name := range names {
		if p := s.Properties[name]; p.Items != nil && p.Items.Properties != nil {
			names[i] = name + ": [{" + p.Items.fields() + "}]"
		}
	}
	text := strings.Join(names, ", ")
	if n := len(s.Required); n > 0 && n < len(names) {
		text = strings.Join(names[:n], ", ") + "; and may take " + strings.Join(names[n:], ", ")
	}
	return text
}

// kindNames are the types of JSON Schema as sentences have them.
var kindNames = map[string]string{
	"string": "a string", "boolean": "true or false", "array": "an array", "object": "an object", "number": "a number", "integer": "a whole number",
}

// kindOf is a value's type in JSON Schema.
func kindOf(v any) string {
	switch v := v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	case json.Number:
		if f, err := v.Float64(); err == nil && f == math.Trunc(f) && !strings.ContainsAny(v.String(), ".eE") {
			return "integer"
		}
		return "number"
	}
	return "null"
}

func shortJSON(v any) string {
	text, _ := json.Marshal(v) // it was read from JSON
	return string(text)
}
