package policies

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
)

// everyField calls try for each field that can be reached from v, with a path
// and a function that changes the field and returns one that puts it back.
func everyField(t *testing.T, path string, v reflect.Value, try func(path string, change func() (undo func()))) {
	t.Helper()
	set := func(x reflect.Value) func() func() {
		return func() func() {
			old := reflect.New(v.Type()).Elem()
			old.Set(v)
			v.Set(x)
			return func() { v.Set(old) }
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		if other, ok := anotherOf(v); ok {
			try(path, set(other))
			return
		}
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				t.Errorf("%s.%s isn't exported: Compare can't see it", path, v.Type().Field(i).Name)
				continue
			}
			everyField(t, path+"."+v.Type().Field(i).Name, v.Field(i), try)
		}
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		try(path+"(nil)", set(reflect.Zero(v.Type())))
		if v.Type() == reflect.TypeFor[*Policy]() {
			return // the same fields again
		}
		everyField(t, path, v.Elem(), try)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		try(path+"(none)", set(reflect.Zero(v.Type())))
		try(path+"(twice)", set(reflect.AppendSlice(reflect.AppendSlice(reflect.Zero(v.Type()), v), v)))
		everyField(t, path+"[0]", v.Index(0), try)
	case reflect.String:
		try(path, set(reflect.ValueOf(v.String()+"x").Convert(v.Type())))
	case reflect.Bool:
		try(path, set(reflect.ValueOf(!v.Bool()).Convert(v.Type())))
	case reflect.Int, reflect.Int64:
		try(path, set(reflect.ValueOf(v.Int()+1).Convert(v.Type())))
	case reflect.Uint8, reflect.Uint16:
		try(path, set(reflect.ValueOf(v.Uint()^1).Convert(v.Type())))
	default:
		t.Errorf("%s is a %s: teach this test to change it", path, v.Kind())
	}
}

// anotherOf returns another value of a type that hides its fields.
func anotherOf(v reflect.Value) (reflect.Value, bool) {
	for _, other := range []any{
		hostname.MustParse("a.example"), hostname.MustParse("b.example"),
		hostname.MustParsePattern("a.example"), hostname.MustParsePattern("*.a.example"),
		netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.0.2.0/25"),
		netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.1:2"),
	} {
		if reflect.TypeOf(other) == v.Type() && other != v.Interface() {
			return reflect.ValueOf(other), true
		}
	}
	return reflect.Value{}, false
}

// TestCompareNamesEveryField changes each field that a policy has, one by one,
// whether this test knows it or not.
func TestCompareNamesEveryField(t *testing.T) {
	t.Parallel()
	filled := func() *Policy {
		p := &Policy{}
		everyField(t, "", reflect.ValueOf(p).Elem(), func(path string, change func() func()) {
			if !strings.HasSuffix(path, ")") {
				change()
			}
		})
		return p
	}
	p, q := filled(), filled()
	if d := Compare(p, q); len(d) != 0 {
		t.Fatalf("two equal policies differ: %+v", d)
	}
	schema := string(Schema())
	tried := 0
	everyField(t, "", reflect.ValueOf(q).Elem(), func(path string, change func() func()) {
		defer change()()
		tried++
		got := Compare(p, q)
		// Where a policy was read from is not what it says.
		place := strings.Contains(path, ".Pos.") || strings.HasPrefix(path, ".File") || strings.HasPrefix(path, ".Path") || strings.HasPrefix(path, ".Include")
		if place != (len(got) == 0) {
			t.Errorf("%s was changed: got %+v", path, got)
		}
		for _, d := range got {
			if d.Before == d.After || d.Key == "" || d.Before == "" || d.After == "" {
				t.Errorf("%s was changed: %+v doesn't show how", path, d)
			}
			key := d.Key[strings.LastIndexByte(d.Key, '.')+1:]
			if i := strings.IndexByte(key, '['); i > 0 {
				key = key[:i]
			}
			hasNoKey := strings.Contains(path, "PEM") || strings.Contains(path, "Hold") || path == ".Outside(none)" || strings.HasPrefix(path, ".Outside") || strings.HasPrefix(path, ".Floor")
			named := strings.Contains(path, "Name") || strings.Contains(path, ".Hosts[0].Target") || strings.Contains(path, "ExtraCA[0].File")
			if !hasNoKey && !named && !strings.Contains(path, "(") && !strings.Contains(schema, fmt.Sprintf("%q", key)) {
				t.Errorf("%s was changed: %q is no key of a policy file", path, d.Key)
			}
		}
	})
	if tried < 80 {
		t.Errorf("only %d fields were tried", tried)
	}
}

func TestCompareShowsValuesAsWritten(t *testing.T) {
	t.Parallel()
	const rules = "[[egress.allow]]\nname = \"a\"\nhosts = [\"a.example\"]\n[[egress.allow]]\nname = \"b\"\nhosts = [\"b.example\"]\n"
	const token = "[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.T]\nfrom = \"env:T\"\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
	for _, tt := range []struct{ name, a, b, want string }{
		{"limit", "", "[limits]\negress_bytes = \"10G\"\n", "limits.egress_bytes: none → 10G"},
		{"target", "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n", "[hosts]\n\"x.internal\" = \"127.0.0.1:90\"\n", `hosts."x.internal": 127.0.0.1:80 → 127.0.0.1:90`},
		{"mapping", "", "[hosts]\n\"x.internal\" = \"127.0.0.1:80\"\n", `hosts."x.internal": none → 127.0.0.1:80`},
		{"servers", "", "[dns]\nservers = [\"udp://192.0.2.1\"]\n", "dns.servers: system → udp://192.0.2.1:53"},
		{"order of servers", "[dns]\nservers = [\"udp://192.0.2.1\", \"system\"]\n", "[dns]\nservers = [\"system\", \"udp://192.0.2.1\"]\n", "dns.servers: in the order udp://192.0.2.1:53, system → in the order system, udp://192.0.2.1:53"},
		{"via", "", "[tls]\nvia = \"http://192.0.2.1:3128\"\n", "tls.via: none → http://192.0.2.1:3128"},
		{"bypass", "", "[tls]\nbypass = [\"a.example\"]\n", "tls.bypass: none → a.example"},
		{"source", token, strings.Replace(token, "env:T", "command:pass show t", 1), "secrets.T.from: env:T → command:pass show t"},
		{"ttl", strings.Replace(token, "env:T", "command:x", 1), strings.Replace(token, "env:T", "command:x", 1) + "ttl = \"5m\"\n", "secrets.T.ttl: none → 5m0s"},
		{"place", token, strings.Replace(token, `"basic"`, `"basic", "body"`, 1), "secrets.T.in: none → body"},
		{"violation", token, token + "on_violation = \"terminate\"\n", "secrets.T.on_violation: block → terminate"},
		{"order of rules", rules, "[[egress.allow]]\nname = \"b\"\nhosts = [\"b.example\"]\n[[egress.allow]]\nname = \"a\"\nhosts = [\"a.example\"]\n", "egress.allow: in the order a, b → in the order b, a"},
		{"new rule", "", "[[egress.allow]]\nname = \"a\"\nhosts = [\"a.example\"]\n", "egress.allow.a: none → hosts a.example; ports 443; protocol https"},
		{"spelling", "[limits]\negress_bytes = \"1024M\"\n", "# the same\nlimits.egress_bytes = \"1G\"\n", ""},
	} {
		var got []string
		for _, d := range Compare(parse(t, tt.a), parse(t, tt.b)) {
			got = append(got, d.Key+": "+d.Before+" → "+d.After)
		}
		if strings.Join(got, "\n") != tt.want {
			t.Errorf("%s: got\n%s\nwant\n%s", tt.name, strings.Join(got, "\n"), tt.want)
		}
	}
}
