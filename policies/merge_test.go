package policies

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestIncludedScalarsAreTakenOver has each key of which a policy has one in a file of its own: the including file's
// stands, included ones that agree are one, and those that disagree are an error that names both.
func TestIncludedScalarsAreTakenOver(t *testing.T) {
	t.Parallel()
	for key, v := range map[string][2]string{
		"sandbox.image": {`"oci:a"`, `"oci:b"`}, "sandbox.command": {`["a", "b"]`, `["a"]`}, "sandbox.cpus": {"2", "3"}, "sandbox.memory": {`"512M"`, `"1G"`},
		"egress.default": {`"public"`, `"deny"`}, "egress.mode": {`"report"`, `"enforce"`},
		"dns.servers": {`["udp://192.0.2.1"]`, `["udp://192.0.2.2"]`}, "dns.min_ttl": {`"1s"`, `"2s"`}, "dns.max_ttl": {`"2h"`, `"3h"`},
		"tls.inspect": {`"all"`, `"auto"`}, "tls.via": {`"http://192.0.2.1:3128"`, `"http://192.0.2.2:3128"`},
		"limits.tcp_connections": {"7", "8"}, "limits.udp_flows": {"7", "8"}, "limits.dns_per_second": {"7", "8"},
		"agent.images": {`["a"]`, `["b"]`}, "agent.directories": {`["/a:/a"]`, `["/a:/a:rw"]`}, "agent.tools": {`["files"]`, `["all"]`},
		"agent.may_request": {`["a.example"]`, `["a.example:8443"]`},
		"agent.approve":     {`"client"`, `"terminal"`},
		"agent.sandboxes":   {"7", "8"}, "agent.cpus": {"7", "8"}, "agent.memory": {`"700M"`, `"800M"`}, "agent.disk": {`"7M"`, `"8M"`},
		"agent.idle_stop": {`"7m"`, `"8m"`}, "agent.lifetime": {`"7m"`, `"8m"`},
		"agent.children.count": {"7", "8"}, "agent.children.total": {"7", "8"}, "agent.children.depth": {"2", "4"}, "agent.children.cpus": {"7", "8"},
		"agent.children.memory": {`"700M"`, `"800M"`}, "agent.children.images": {`["a"]`, `["b"]`}, "agent.children.lifetime": {`"7m"`, `"8m"`},
		"limits.egress_bytes": {`"7M"`, `"8M"`}, "limits.egress_rate": {`"7M/s"`, `"8M/s"`},
	} {
		files := map[string]string{"a.toml": key + " = " + v[0], "same.toml": key + " = " + v[0], "b.toml": key + " = " + v[1], "none.toml": ""}
		open := func(path string) ([]byte, error) {
			if text, ok := files[path]; ok {
				return []byte("version = 1\n" + text), nil
			}
			return nil, os.ErrNotExist
		}
		parse := func(own string, includes ...string) (string, error) {
			list := strings.ReplaceAll(fmt.Sprintf("%q", includes), " ", ", ")
			p, err := Parse("x.toml", []byte("version = 1\ninclude = "+list+"\n"+own+"\n"), open)
			if err != nil {
				return "", err
			}
			for _, s := range scalarKeys {
				if s.key == key {
					return fmt.Sprintf("%+v", derefAny(s.of(p))), nil
				}
			}
			return "", errors.New("no such scalar")
		}
		first, err := parse(files["a.toml"], "none.toml")
		second, err2 := parse(files["b.toml"], "none.toml")
		if err != nil || err2 != nil || first == second {
			t.Fatalf("%s: %v, %v, %s and %s", key, err, err2, first, second)
		}
		for _, c := range []struct {
			own      string
			includes []string
			want     string
		}{
			{"", []string{"a.toml"}, first}, {"", []string{"b.toml"}, second}, {"", []string{"none.toml", "a.toml"}, first},
			{"", []string{"a.toml", "same.toml"}, first}, {files["b.toml"], []string{"a.toml"}, second}, {files["b.toml"], []string{"a.toml", "same.toml"}, second},
			{files["a.toml"], []string{"a.toml", "b.toml"}, first},
		} {
			if got, err := parse(c.own, c.includes...); err != nil || got != c.want {
				t.Errorf("%s: %q with %v: %s, %v; want %s", key, c.own, c.includes, got, err, c.want)
			}
		}
		if _, err := parse("", "a.toml", "b.toml"); err == nil || !strings.Contains(err.Error(), "b.toml:2:1: "+key+": two included files disagree; a.toml:2:1 sets it too") {
			t.Errorf("%s: two that disagree: %v", key, err)
		}
	}
}

// derefAny is what a pointer of scalarKeys points at.
func derefAny(p any) any { return reflect.ValueOf(p).Elem().Interface() }

// TestI12_NestingIsBounded has files at each bound, and one step beyond it.
func TestI12_NestingIsBounded(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return "x = " + strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct {
		text string
		want string // "" is within all bounds
	}{
		"brackets":            {deep(maxNesting), ""},
		"one bracket more":    {deep(maxNesting + 1), "brackets in each other"},
		"braces":              {"x = " + strings.Repeat("{a=", maxNesting+1), "brackets in each other"},
		"brackets in a row":   {"x = [" + strings.Repeat("[],", 100) + "]", ""},
		"braces in a row":     {"x = [" + strings.Repeat("{},", 100) + "]", ""},
		"brackets in a text":  {"x = \"" + strings.Repeat("[", 100) + "\"", ""},
		"and behind it":       {"x = \"\\\"]\" + '''\n''' " + strings.Repeat("[", 17), "brackets in each other"},
		"in a comment":        {"x = 1 # " + strings.Repeat("[", 100), ""},
		"behind a comment":    {"x = 1 # [\ny = " + strings.Repeat("[", 17), "brackets in each other"},
		"in a long text":      {"x = '''\n" + strings.Repeat("[", 100) + "\n'''", ""},
		"behind a long text":  {"x = \"\"\"a\"\"\"\"\"\ny = " + strings.Repeat("[", 17), "brackets in each other"},
		"behind a cut string": {"x = \"[[[[\ny = " + strings.Repeat("[", 17), "brackets in each other"},
		"dots":                {"a" + strings.Repeat(".a", maxDots) + " = 1", ""},
		"one dot more":        {"a" + strings.Repeat(".a", maxDots+1) + " = 1", "dots on one line"},
		"dots of two lines":   {"a" + strings.Repeat(".a", 20) + " = 1\nb" + strings.Repeat(".a", 20) + " = 1", ""},
		"a key":               {strings.Repeat("a", maxKey) + " = 1", ""},
		"a longer key":        {strings.Repeat("a", maxKey+1) + " = 1", "a key of more than"},
		"a key of dashes":     {strings.Repeat("-", maxKey+1) + " = 1", "a key of more than"},
		"a key of underlines": {strings.Repeat("_", maxKey+1) + " = 1", "a key of more than"},
		"two keys":            {strings.Repeat("a", maxKey) + "." + strings.Repeat("a", maxKey) + " = 1", ""},
		"a quoted key":        {"\"" + strings.Repeat("a", maxKey-2) + "\" = 1", ""},
		"a longer quoted key": {"\"" + strings.Repeat(" ", maxKey) + "\" = 1", "a key of more than"},
		"with a part behind":  {"'" + strings.Repeat(" ", maxKey) + "' .a = 1", "a key of more than"},
		"in a header":         {" [a.'" + strings.Repeat(" ", maxKey) + "']", "a key of more than"},
		"a long value":        {"x = \"" + strings.Repeat(" ", 2*maxKey) + "\"", ""},
		"a long element":      {"x = [\n\"" + strings.Repeat(" ", 2*maxKey) + "\"]", ""},
		"below a header":      {"[a]\nx = '" + strings.Repeat(" ", 2*maxKey) + "'", ""},
	} {
		_, err := Parse("x.toml", []byte("version = 1\n"+c.text+"\n"), nil)
		got := ""
		for _, bound := range []string{"brackets in each other", "dots on one line", "a key of more than"} {
			if err != nil && strings.Contains(err.Error(), bound) {
				got = bound
			}
		}
		if got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
