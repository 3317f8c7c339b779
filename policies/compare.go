package policies

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// Difference is one key whose value differs between two policies.
type Difference struct {
	// Key is the path of the key. Rules, secrets and names of [hosts] stand in it by
	// their names: "egress.allow.api.ports". "floor." is in front of the floor's.
	Key string `json:"key"`
	// Before and After are the values; of lists, the elements that only one has, or
	// all of them where only the order differs. "none" stands for a key that is left out.
	Before string `json:"before"`
	After  string `json:"after"`
}

// Compare returns the keys that differ between a and b; none means that the two
// policies are the same in everything but place and spelling. It walks the types
// by reflection, so that a key which is added to them is compared too.
func Compare(a, b *Policy) []Difference {
	c := &comparer{}
	c.compare("", reflect.ValueOf(*a), reflect.ValueOf(*b))
	return c.found
}

// uncompared are the fields that say where a policy was read, not what it says.
var uncompared = map[string]bool{
	"Policy.File": true, "Policy.Path": true, "Policy.Include": true, "Policy.Included": true,
	"Rule.Pos": true, "IngressRule.Pos": true, "HostMapping.Pos": true, "ExtraCA.Pos": true, "Secret.Pos": true,
}

// fileKeys are the keys of fields that a file calls something else; "" where a
// field is the value of the table around it.
var fileKeys = map[string]string{
	"Rule.CIDRs": "cidrs", "IngressRule.CIDRs": "cidrs", "SandboxDefaults.CPUs": "cpus", "Agent.CPUs": "cpus", "ChildBudget.CPUs": "cpus", "HostMapping.Target": "", "Secret.From": "",
}

type comparer struct{ found []Difference }

func (c *comparer) note(key string, a, b reflect.Value) {
	before, after := textOf(a), textOf(b)
	if before == after {
		before, after = fmt.Sprintf("%#v", a.Interface()), fmt.Sprintf("%#v", b.Interface())
	}
	c.add(key, before, after)
}

func (c *comparer) add(key, before, after string) {
	c.found = append(c.found, Difference{Key: key, Before: before, After: after})
}

func (c *comparer) compare(key string, a, b reflect.Value) {
	t := a.Type()
	switch {
	case reflect.DeepEqual(a.Interface(), b.Interface()):
	case atom(t), t.Kind() == reflect.Pointer && (a.IsNil() || b.IsNil()):
		c.note(key, a, b)
	case t.Kind() == reflect.Pointer:
		c.compare(key, a.Elem(), b.Elem())
	case t.Kind() == reflect.Slice:
		c.lists(key, a, b)
	default:
		c.fields(key, a, b)
	}
}

// fields compares two structs.
func (c *comparer) fields(key string, a, b reflect.Value) {
	t := a.Type()
	source, isSource := a.Interface().(Source)
	if other, _ := b.Interface().(Source); isSource && !sameSource(source, other) {
		c.note(joinKey(key, "from"), a, b)
	}
	for i := range t.NumField() {
		name := t.Name() + "." + t.Field(i).Name
		if uncompared[name] || isSource && slices.Contains([]string{"Kind", "Value", "Argv"}, t.Field(i).Name) {
			continue
		}
		below := key
		if k := fileKey(name); k != "" {
			below = joinKey(key, k)
		}
		c.compare(below, a.Field(i), b.Field(i))
	}
}

// lists compares two slices: element by element, if these have names.
func (c *comparer) lists(key string, a, b reflect.Value) {
	if atom(a.Type().Elem()) {
		c.elements(key, a, b)
		return
	}
	before, after := labels(a), labels(b)
	for i, label := range before {
		if j := slices.Index(after, label); j >= 0 {
			c.compare(elementKey(key, label), a.Index(i), b.Index(j))
			continue
		}
		c.add(elementKey(key, label), textOf(a.Index(i)), none)
	}
	for j, label := range after {
		if !slices.Contains(before, label) {
			c.add(elementKey(key, label), none, textOf(b.Index(j)))
		}
	}
	if x, y := remove(before, remove(before, after)), remove(after, remove(after, before)); !slices.Equal(x, y) {
		c.add(key, "in the order "+joined(x), "in the order "+joined(y))
	}
}

func elementKey(list, label string) string {
	if strings.HasPrefix(label, "[") {
		return list + label
	}
	return joinKey(list, label)
}

// labels are the names of a list's elements, or their numbers where one has none
// or two have the same.
func labels(list reflect.Value) []string {
	names := make([]string, list.Len())
	numbers := make([]string, list.Len())
	for i := range names {
		numbers[i] = fmt.Sprintf("[%d]", i)
		for _, field := range []string{"Name", "File"} {
			if f := list.Index(i).FieldByName(field); f.IsValid() && names[i] == "" {
				names[i] = fmt.Sprint(f.Interface())
			}
		}
		if names[i] == "" || slices.Contains(names[:i], names[i]) {
			return numbers[:len(numbers):len(numbers)]
		}
	}
	return names
}

// elements compares two slices of plain values.
func (c *comparer) elements(key string, a, b reflect.Value) {
	x, y := texts(a), texts(b)
	removed, added := remove(x, y), remove(y, x)
	switch {
	case len(removed)+len(added) > 0:
		c.add(key, joined(removed), joined(added))
	case !slices.Equal(x, y):
		c.add(key, "in the order "+joined(x), "in the order "+joined(y))
	case a.Len() > 0:
		c.note(key, a, b)
	case strings.HasSuffix(key, "agent.secrets"), strings.HasSuffix(key, "agent.may_request"): // left out it is all of them; of other lists, nil and empty mean the same
		c.add(key, emptyOr(a), emptyOr(b))
	}
}

// emptyOr shows a list without elements.
func emptyOr(list reflect.Value) string {
	if list.IsNil() {
		return none
	}
	return "[]"
}

// remove returns what is left of a when each element of b is taken away once.
func remove(a, b []string) (left []string) {
	count := map[string]int{}
	for _, s := range b {
		count[s]++
	}
	for _, s := range a {
		if count[s]--; count[s] < 0 {
			left = append(left, s)
		}
	}
	return left
}

// atom reports whether values of t are compared and shown as one: those that hide
// their fields or have a text of their own.
func atom(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return t.Elem().Kind() == reflect.Uint8 // bytes
	case reflect.Struct:
		for i := range t.NumField() {
			if !t.Field(i).IsExported() {
				return true
			}
		}
		return t.Comparable() && t.Implements(reflect.TypeFor[fmt.Stringer]())
	default:
		return true
	}
}

// none is the text of what is left out.
const none = "none"

func joined(list []string) string {
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ", ")
}

func texts(list reflect.Value) []string {
	out := make([]string, list.Len())
	for i := range out {
		out[i] = textOf(list.Index(i))
	}
	return out
}

// textOf shows v in one line.
func textOf(v reflect.Value) string {
	if v.IsZero() && !slices.Contains([]reflect.Kind{reflect.Bool, reflect.Uint8, reflect.Struct}, v.Kind()) {
		return none
	}
	switch x := v.Interface().(type) {
	case []byte:
		return fmt.Sprintf("%d bytes with SHA-256 %x", len(x), sha256.Sum256(x))
	case fmt.Stringer:
		return x.String()
	case int64:
		return FormatSize(x)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return textOf(v.Elem())
	case reflect.Slice:
		return joined(texts(v))
	case reflect.Struct:
		return textOfFields(v)
	default:
		return fmt.Sprint(v.Interface())
	}
}

// textOfFields shows the fields of v that hold anything.
func textOfFields(v reflect.Value) string {
	var parts []string
	for i := range v.NumField() {
		field := v.Type().Field(i).Name
		name := v.Type().Name() + "." + field
		if !v.Field(i).IsZero() && !uncompared[name] && field != "Name" {
			parts = append(parts, strings.TrimSpace(fileKey(name)+" "+textOf(v.Field(i))))
		}
	}
	if parts == nil {
		return "empty"
	}
	return strings.Join(parts, "; ")
}

// fileKey turns "Limits.DNSPerSecond" into "dns_per_second".
func fileKey(name string) string {
	if key, ok := fileKeys[name]; ok {
		return key
	}
	runes := []rune(name[strings.IndexByte(name, '.')+1:])
	var b strings.Builder
	for i, r := range runes {
		before := i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsUpper(r) && unicode.IsLower(runes[i+1]))
		if before && (unicode.IsUpper(r) || unicode.IsDigit(r)) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
