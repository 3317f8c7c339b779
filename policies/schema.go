package policies

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Schema returns the JSON Schema (draft 2020-12) of the policy file, for
// editors. It is made from the types that the file is read into, so it can't
// lag behind; what only validation knows, such as the form of a host, is left
// to `msb policy check`.
func Schema() []byte {
	root := schemaOf(reflect.TypeFor[fileDoc](), "", "")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "msb policy"
	root["required"] = []string{"version"}
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // maps of strings and lists always marshal
	}
	return append(out, '\n')
}

// Patterns of the texts that have one; see units.go.
const (
	sizePattern     = `^[0-9]+([KMGTkmgt]([iI]?[bB])?|[bB])?$`
	ratePattern     = `^[0-9]+([KMGTkmgt]([iI]?[bB])?|[bB])?/s$`
	portPattern     = `^[0-9]+(-[0-9]+)?$`
	durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
)

// schemaOf returns the schema of one type of file.go. kind and of are the tags
// of the field that holds it.
func schemaOf(t reflect.Type, kind, of string) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), kind, of)
	case reflect.Struct:
		return schemaOfStruct(t)
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), "", "")}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), kind, of)}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Interface:
		return schemaOfAny(kind)
	case reflect.String:
		return schemaOfText(kind, of)
	default:
		panic("file.go holds a kind that has no schema: " + t.String())
	}
}

func schemaOfText(kind, of string) map[string]any {
	s := map[string]any{"type": "string"}
	switch kind {
	case "enum":
		s["enum"] = strings.Fields(of)
	case "duration":
		s["pattern"] = durationPattern
	}
	return s
}

func schemaOfStruct(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		s := schemaOf(t.Field(i).Type, tag.Get("kind"), tag.Get("of"))
		s["description"] = tag.Get("doc")
		properties[tag.Get("toml")] = s
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
}

// schemaOfAny is for keys that take text or a number, or text or a list.
func schemaOfAny(kind string) map[string]any {
	text := map[string]any{"type": "string"}
	other := map[string]any{"type": "integer", "minimum": 1}
	switch kind {
	case "size":
		text["pattern"] = sizePattern
	case "rate":
		text["pattern"] = ratePattern
	case "ports":
		text["pattern"] = portPattern
		other["maximum"] = 65535
	case "argv":
		other = map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "minItems": 1}
	}
	return map[string]any{"anyOf": []any{text, other}}
}
