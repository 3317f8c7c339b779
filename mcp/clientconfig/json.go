package clientconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/tailscale/hujson"
)

// editJSON sets or, for nil, removes the server msb in a JSON document, which may have comments and trailing commas.
func editJSON(doc []byte, table string, entry any) ([]byte, error) {
	if len(bytes.TrimSpace(doc)) == 0 {
		if entry == nil {
			return doc, nil
		}
		b, err := json.MarshalIndent(map[string]any{table: map[string]any{serverName: entry}}, "", "  ")
		return append(b, '\n'), err
	}
	if bytes.HasPrefix(doc, []byte("\xef\xbb\xbf")) {
		return nil, errors.New("the file begins with a byte order mark; save it without one, and run the command again")
	}
	root, err := hujson.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf("it can't be read as JSON, and is left as it is: %s", strings.TrimPrefix(err.Error(), "hujson: "))
	}
	servers, err := member(&root, "the file", table)
	if err != nil {
		return nil, err
	}
	var old *hujson.Value
	if servers != nil {
		if old, err = member(servers, strconv.Quote(table), serverName); err != nil {
			return nil, err
		}
	}
	switch {
	case entry == nil && old == nil, entry != nil && old != nil && same(old, entry):
		return doc, nil
	case entry == nil:
		err = patch(&root, "remove", pointer(table, serverName), nil)
	case servers == nil:
		err = patch(&root, "add", pointer(table), map[string]any{serverName: entry})
	default:
		err = patch(&root, "add", pointer(table, serverName), entry) // or replace
	}
	if err != nil {
		return nil, err
	}
	return root.Pack(), nil
}

// strictJSON says what in a document a reader without comments and trailing commas would refuse.
func strictJSON(doc []byte) error {
	var v any
	var at *json.SyntaxError
	if err := json.Unmarshal(doc, &v); err == nil || !errors.As(err, &at) {
		return err
	}
	what := "a fault"
	switch before := doc[:at.Offset]; before[len(before)-1] {
	case '/':
		what = "a comment"
	case '}', ']':
		what = "a trailing comma"
	}
	return fmt.Errorf("%s in line %d", what, 1+bytes.Count(doc[:at.Offset-1], []byte("\n")))
}

// member finds one of an object, which of names. It is nil where there is none.
func member(v *hujson.Value, of, name string) (*hujson.Value, error) {
	obj, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil, fmt.Errorf("%s is no object of JSON, and is left as it is; write {} in its place, and run the command again", of)
	}
	var found *hujson.Value
	for i := range obj.Members {
		m := &obj.Members[i]
		if l, ok := m.Name.Value.(hujson.Literal); !ok || l.String() != name {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%q stands twice in one object, so that readers differ; it is left as it is", name)
		}
		found = &m.Value
	}
	return found, nil
}

func pointer(names ...string) string { return "/" + strings.Join(names, "/") }

func patch(root *hujson.Value, op, path string, value any) error {
	b, err := json.Marshal([]map[string]any{{"op": op, "path": path, "value": value}})
	if err != nil {
		return err
	}
	if err := root.Patch(b); err != nil {
		return err
	}
	if op == "add" {
		return lines(root, path, value)
	}
	return nil
}

// lines puts what was added on lines of its own, indented as the first member of the document is.
func lines(root *hujson.Value, path string, value any) error {
	_, unit, _ := strings.Cut(string(root.Value.(*hujson.Object).Members[0].Name.BeforeExtra), "\n")
	if unit = strings.TrimLeft(unit, "\n"); unit == "" || strings.Trim(unit, " \t") != "" { // one line, or a comment
		unit = "  "
	}
	depth := strings.Count(path, "/")
	at, name := path[:strings.LastIndex(path, "/")], path[strings.LastIndex(path, "/")+1:]
	obj := root.Find(at).Value.(*hujson.Object)
	b, err := json.MarshalIndent(value, strings.Repeat(unit, depth), unit)
	if err != nil {
		return err
	}
	pretty, err := hujson.Parse(b)
	if err != nil {
		return err
	}
	for i := range obj.Members {
		m := &obj.Members[i]
		if m.Name.Value.(hujson.Literal).String() != name {
			continue
		}
		m.Value.Value, m.Value.BeforeExtra = pretty.Value, hujson.Extra(" ")
		if !bytes.Contains(m.Name.BeforeExtra, []byte("\n")) {
			m.Name.BeforeExtra = hujson.Extra("\n" + strings.Repeat(unit, depth))
		}
		if !bytes.Contains(obj.AfterExtra, []byte("\n")) && m.Value.AfterExtra == nil {
			obj.AfterExtra = append(obj.AfterExtra, "\n"+strings.Repeat(unit, depth-1)...)
		}
	}
	return nil
}

// same reports whether a value is equal to entry.
func same(v *hujson.Value, entry any) bool {
	plain := v.Clone()
	plain.Standardize()
	want, err := json.Marshal(entry)
	if err != nil {
		return false
	}
	var a, b any
	return json.Unmarshal(plain.Pack(), &a) == nil && json.Unmarshal(want, &b) == nil && reflect.DeepEqual(a, b)
}
