package policies

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// tree fills the types of file.go from what the TOML library decoded. The
// library can do that too, but stops at the first wrong type and can't say
// where an unknown key stands; here every fault is collected.
type tree struct{ faults *faults }

// fill reads v, found at key, into rv.
func (t tree) fill(rv reflect.Value, v any, key string) {
	switch rv.Kind() {
	case reflect.Pointer:
		rv.Set(reflect.New(rv.Type().Elem()))
		t.fill(rv.Elem(), v, key)
	case reflect.Struct:
		t.fillStruct(rv, v, key)
	case reflect.Map:
		t.fillMap(rv, v, key)
	case reflect.Slice:
		t.fillSlice(rv, v, key)
	case reflect.Interface:
		switch v.(type) {
		case string, int64, []any:
			rv.Set(reflect.ValueOf(v))
		default:
			t.wrongType(key, v, "a string or a whole number")
		}
	case reflect.String:
		if s, ok := v.(string); ok {
			rv.SetString(s)
			return
		}
		t.wrongType(key, v, "a string")
	case reflect.Int64:
		if n, ok := v.(int64); ok {
			rv.SetInt(n)
			return
		}
		t.wrongType(key, v, "a whole number")
	case reflect.Bool:
		if b, ok := v.(bool); ok {
			rv.SetBool(b)
			return
		}
		t.wrongType(key, v, "true or false")
	default:
		panic("file.go holds a kind that tree does not read: " + rv.Kind().String())
	}
}

func (t tree) fillStruct(rv reflect.Value, v any, key string) {
	table, ok := v.(map[string]any)
	if !ok {
		t.wrongType(key, v, "a table")
		return
	}
	fields := map[string]int{}
	for i := range rv.NumField() {
		fields[rv.Type().Field(i).Tag.Get("toml")] = i
	}
	for _, name := range sortedKeys(table) {
		if i, known := fields[name]; known {
			t.fill(rv.Field(i), table[name], joinKey(key, name))
		} else {
			t.unknownKey(key, name, sortedKeys(fields))
		}
	}
}

func (t tree) fillMap(rv reflect.Value, v any, key string) {
	table, ok := v.(map[string]any)
	if !ok {
		t.wrongType(key, v, "a table")
		return
	}
	rv.Set(reflect.MakeMap(rv.Type()))
	for _, name := range sortedKeys(table) {
		path := joinKey(key, name)
		if _, nested := table[name].(map[string]any); nested && rv.Type().Elem().Kind() == reflect.String {
			t.broken(path, "it is a table", fmt.Sprintf("put a name that holds dots in quotes: \"%s.example\" = …", name))
			continue
		}
		element := reflect.New(rv.Type().Elem()).Elem()
		t.fill(element, table[name], path)
		rv.SetMapIndex(reflect.ValueOf(name), element)
	}
}

func (t tree) fillSlice(rv reflect.Value, v any, key string) {
	var list []any
	switch v := v.(type) {
	case []any:
		list = v
	case []map[string]any: // how the library returns [[tables]]
		for _, table := range v {
			list = append(list, table)
		}
	default:
		remedy := "put it in brackets"
		if rv.Type().Elem().Kind() == reflect.Struct {
			remedy = fmt.Sprintf("write the header with two brackets, [[%s]]", key)
		}
		t.broken(key, "it is "+typeName(v)+", not a list", remedy)
		return
	}
	// Never nil: a list that is there and empty is not a key left out.
	rv.Set(reflect.MakeSlice(rv.Type(), len(list), len(list)))
	for i, v := range list {
		t.fill(rv.Index(i), v, fmt.Sprintf("%s[%d]", key, i))
	}
}

func (t tree) wrongType(key string, v any, want string) {
	t.broken(key, "it is "+typeName(v)+", not "+want, typeRemedy(key, v, want))
}

// typeRemedy says how to write what is wanted.
func typeRemedy(key string, v any, want string) string {
	_, text := v.(string)
	switch {
	case want == "a table" && strings.HasSuffix(key, "]"):
		return fmt.Sprintf("write a header [[%s]] for each, and its keys below", key[:strings.LastIndexByte(key, '[')])
	case want == "a table":
		return fmt.Sprintf("write a header [%s], and its keys below", key)
	case text && want != "a string":
		return "write " + want + ", without quotes"
	case want == "a string" && slices.Contains([]string{"a list", "a table"}, typeName(v)):
		return "write a single value in quotes"
	case want == "a string":
		return "put it in quotes"
	}
	return "write " + want
}

// broken reports a key that holds nothing that can be read further.
func (t tree) broken(key, message, remedy string) {
	t.faults.add(key, message, remedy)
	if t.faults.broken == nil {
		t.faults.broken = map[string]bool{}
	}
	t.faults.broken[key] = true
}

// unknownKey reports a key that the table doesn't have. A top-level key found
// in a table is almost always one written below a table header, which TOML
// puts into that table.
func (t tree) unknownKey(table, name string, known []string) {
	key := joinKey(table, name)
	if table != "" && (name == "include" || name == "version") {
		t.faults.add(key, fmt.Sprintf("%q belongs to the file, not to [%s]", name, table),
			"move it to the top, above the first [table]: TOML puts every line after a header into that table")
		return
	}
	where := "the file"
	if table != "" {
		where = "[" + table + "]"
	}
	remedy, n := "its keys are "+strings.Join(known, ", "), len(t.faults.list)
	guess := Closest(name, known)
	if guess != "" {
		remedy = fmt.Sprintf("did you mean %q?", guess)
	}
	if t.faults.add(key, "unknown key in "+where, remedy); guess != "" && len(t.faults.list) > n {
		t.faults.list[n].meant = joinKey(table, guess)
	}
}

func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "true or false"
	case time.Time:
		return "a date or time"
	case []any, []map[string]any:
		return "a list"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("%T", v)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
