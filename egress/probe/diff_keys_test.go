package probe_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/egress/probe"
	"github.com/msb-project/msb/policies"
)

// filed is a key of a policy file with values that mean different things; "" leaves it out, where that means another.
type filed struct {
	table, key string
	values     []string
}

// fileTables are a policy file's tables in their order.
var fileTables = []string{"", "[sandbox]", "[egress]", "[[egress.allow]] #api", "[[egress.allow]] #lab", "[[egress.deny]]", "[[ingress.allow]]", "[[ingress.allow]] #app", "[hosts]", "[dns]", "[tls]", "[[tls.extra_ca]]", "[secrets.T]", "[secrets.T.mint]", "[secrets.A]", "[limits]", "[agent]", "[agent.children]", "[ssh]"}

var fileKeys = []filed{
	{"", "version", []string{"1"}},
	{"", "include", []string{"", `["pypi"]`, `["npm"]`, `["npm", "pypi"]`}},
	{"[sandbox]", "image", []string{"", `"builtin"`, `"alpine"`, `"dir:a"`}},
	{"[sandbox]", "command", []string{"", `["a", "b"]`, `["a b"]`, `["b", "a"]`, `["none"]`}},
	{"[sandbox]", "cpus", []string{"", "1", "2"}},
	{"[sandbox]", "memory", []string{"", `"512M"`, "536870911"}},
	{"[egress]", "default", []string{`"deny"`, `"public"`}},
	{"[egress]", "mode", []string{`"enforce"`, `"report"`}},
	{"[[egress.allow]] #api", "name", []string{`"api"`, `"api2"`, `"none"`}},
	{"[[egress.allow]] #api", "hosts", []string{`["api.example.com"]`, `["api.example.com", "*.api.example.com"]`, `["api.example.com", "x.example.com"]`}},
	{"[[egress.allow]] #api", "within", []string{"", `["10.20.0.0/16"]`, `["10.20.0.0/17"]`, `["0.0.0.0/0"]`}},
	{"[[egress.allow]] #api", "ports", []string{"[443]", "[443, 8443]", `["443-444"]`}},
	{"[[egress.allow]] #api", "protocol", []string{`"https"`, `"http"`, `"tls"`, `"tcp"`, `"udp"`, `"any"`}},
	{"[[egress.allow]] #api", "methods", []string{"", `["GET"]`, `["GET", "PUT"]`, `["PUT"]`}},
	{"[[egress.allow]] #api", "paths", []string{"", `["/a/**"]`, `["/a/*"]`, `["/a/%2a"]`}},
	{"[[egress.allow]] #api", "why", []string{"", `"a"`, `"b"`}},
	{"[[egress.allow]] #lab", "name", []string{`"lab"`}},
	{"[[egress.allow]] #lab", "ports", []string{"[5432]"}},
	{"[[egress.allow]] #lab", "cidrs", []string{`["10.0.0.0/8"]`, `["10.0.0.0/9"]`, `["192.0.2.0/24", "10.0.0.0/8"]`, `["8.8.8.0/24"]`}},
	{"[[egress.allow]] #lab", "private", []string{"true", "false"}},
	{"[[egress.deny]]", "hosts", []string{`["bad.example.com"]`, `["*.bad.example.com"]`}},
	{"[[egress.deny]]", "ports", []string{"", "[443]", "[80]"}},
	{"[[egress.deny]]", "protocol", []string{"", `"https"`, `"udp"`, `"icmp"`}},
	{"[[ingress.allow]]", "name", []string{`"in"`, `"in2"`}},
	{"[[ingress.allow]]", "cidrs", []string{`["10.0.0.0/8"]`, `["10.0.0.0/9"]`, `["192.0.2.0/24", "10.0.0.0/8"]`}},
	{"[[ingress.allow]]", "why", []string{"", `"a"`, `"b"`}},
	{"[[ingress.allow]] #app", "name", []string{`"app"`}},
	{"[[ingress.allow]] #app", "sandboxes", []string{`["web"]`, `["web", "worker"]`}},
	{"[[ingress.allow]] #app", "ports", []string{"[5432]", "[5433]", `["5432-5440"]`}},
	{"[hosts]", `"x.example.org"`, []string{"", `"127.0.0.1:80"`, `"127.0.0.1"`, `"builtin:echo"`}},
	{"[dns]", "servers", []string{`["system"]`, `["udp://192.0.2.1"]`, `["tls://192.0.2.1#a.example"]`, `["tls://192.0.2.1#b.example"]`, `["https://a.example/x"]`, `["https://a.example/y"]`, `["udp://192.0.2.1", "system"]`, `["system", "udp://192.0.2.1"]`}},
	{"[dns]", "min_ttl", []string{"", `"59s"`, `"61s"`}},
	{"[dns]", "max_ttl", []string{"", `"2h"`, `"30m"`}},
	{"[tls]", "inspect", []string{`"auto"`, `"all"`, `"none"`}},
	{"[tls]", "bypass", []string{"", `["pin.example.com"]`, `["*.pin.example.com"]`}},
	{"[tls]", "via", []string{"", `"http://192.0.2.1:3128"`, `"http://192.0.2.1:3129"`}},
	{"[[tls.extra_ca]]", "file", []string{`"a.pem"`, `"b.pem"`}},
	{"[[tls.extra_ca]]", "hosts", []string{`["api.example.com"]`, `["*.example.com"]`}},
	{"[secrets.T]", "from", []string{`"env:T"`, `"env:U"`, `"file:t"`, `"command:x a b"`, `["command:x", "a b"]`}},
	{"[secrets.T]", "hosts", []string{`["api.example.com"]`, `["api.example.com:8443"]`}},
	{"[secrets.T]", "in", []string{`["basic"]`, `["basic", "body"]`, `["header:Authorization"]`, `["header:X-Key"]`, `["query:key"]`}},
	{"[secrets.T]", "placeholder", []string{"", `"ghp_{36}"`, `"ghp_{37}"`}},
	{"[secrets.T]", "on_violation", []string{`"block"`, `"terminate"`}},
	{"[secrets.T]", "ttl", []string{"", `"5m"`, `"6m"`}},
	{"[secrets.T]", "refresh_on_401", []string{"false", "true"}},
	{"[secrets.T]", "upgrades", []string{"", `["a"]`, `["b"]`}},
	{"[secrets.T.mint]", "path", []string{`"/oauth/token"`, `"/token"`}},
	{"[secrets.T.mint]", "fields", []string{`["access_token"]`, `["access_token", "refresh_token"]`}},
	{"[secrets.A]", "from", []string{`"env:A"`}},
	{"[secrets.A]", "hosts", []string{`["api.example.com"]`}},
	{"[secrets.A]", "kind", []string{`"aws-sigv4"`}},
	{"[secrets.A]", "services", []string{`["s3"]`, `["s3", "sts"]`}},
	{"[secrets.A]", "regions", []string{`["eu-west-1"]`, `["eu-west-2"]`}},
	{"[limits]", "tcp_connections", []string{"", "7", "8"}},
	{"[limits]", "udp_flows", []string{"", "7", "8"}},
	{"[limits]", "dns_per_second", []string{"", "7", "8"}},
	{"[limits]", "egress_bytes", []string{"", `"1M"`, "1048577"}},
	{"[limits]", "egress_rate", []string{"", `"1M/s"`, "1048577"}},
	{"[agent]", "images", []string{"", `["a"]`, `["a", "b"]`, `["b", "a"]`}},
	{"[agent]", "directories", []string{"", `["/a:/a"]`, `["/a:/a:rw"]`, `["/a:/b"]`}},
	{"[agent]", "secrets", []string{"", "[]"}},
	{"[agent]", "tools", []string{"", `["files"]`, `["all"]`}},
	{"[agent]", "may_request", []string{"", "[]", `["a.example.com"]`, `["a.example.com:8443"]`}},
	{"[agent]", "sandboxes", []string{"", "7", "8"}},
	{"[agent]", "cpus", []string{"", "7", "8"}},
	{"[agent]", "memory", []string{"", `"1G"`, "1073741825"}},
	{"[agent]", "disk", []string{"", `"1G"`, "1073741825"}},
	{"[agent]", "idle_stop", []string{"", `"7m"`, `"8m"`}},
	{"[agent]", "lifetime", []string{"", `"7m"`, `"8m"`}},
	{"[agent]", "approve", []string{`"terminal"`, `"client"`}},
	{"[agent.children]", "count", []string{"", "7", "8"}},
	{"[agent.children]", "total", []string{"", "7", "8"}},
	{"[agent.children]", "depth", []string{"", "2", "3"}},
	{"[agent.children]", "cpus", []string{"", "7", "8"}},
	{"[agent.children]", "memory", []string{"", `"1G"`, "1073741825"}},
	{"[agent.children]", "lifetime", []string{"", `"7m"`, `"8m"`}},
	{"[agent.children]", "images", []string{"", `["a"]`, `["a", "b"]`}},
	{"[ssh]", "agent_forwarding", []string{"false", "true"}},
	{"[ssh]", "reverse_forwarding", []string{"false", "true"}},
	{"[ssh]", "x11_forwarding", []string{"false", "true"}},
}

// fileText writes a policy of the tables that use names, with the value that choice has for each key.
func fileText(use map[string]bool, choice []int) string {
	var b strings.Builder
	for _, table := range fileTables {
		if !use[table] {
			continue
		}
		b.WriteString(table + "\n")
		for i, k := range fileKeys {
			if v := k.values[choice[i]]; k.table == table && v != "" {
				fmt.Fprintf(&b, "%s = %s\n", k.key, v)
			}
		}
	}
	return b.String()
}

// schemaKeys are the paths of the keys of a policy file, without names that its author chooses.
func schemaKeys(t *testing.T) (keys []string) {
	t.Helper()
	var schema map[string]any
	if err := json.Unmarshal(policies.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	var walk func(path string, s map[string]any)
	walk = func(path string, s map[string]any) {
		if items, ok := s["items"].(map[string]any); ok {
			s = items
		}
		props, _ := s["properties"].(map[string]any)
		more, _ := s["additionalProperties"].(map[string]any)
		if props == nil && more == nil {
			keys = append(keys, path)
			return
		}
		for k, v := range props {
			below, _ := v.(map[string]any)
			walk(strings.TrimPrefix(path+"."+k, "."), below)
		}
		if more != nil {
			walk(path+".*", more)
		}
	}
	walk("", schema)
	return keys
}

// TestDiffNamesEveryKey compares random policies that differ in one key: as they are, as the files that two others
// include, and as floors. None is the same as the other.
func TestDiffNamesEveryKey(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, k := range fileKeys {
		table := strings.NewReplacer("[", "", "]", "", "secrets.T", "secrets.*", "secrets.A", "secrets.*", " #api", "", " #app", "", " #lab", "", `"x.example.org"`, "*").Replace(k.table + "." + k.key)
		known[strings.TrimPrefix(table, ".")] = true
	}
	for _, key := range schemaKeys(t) {
		if !known[key] && !known[strings.Replace(key, "egress.deny", "egress.allow", 1)] {
			t.Errorf("this test doesn't know %s", key)
		}
	}
	dir := t.TempDir()
	load := func(name, text string) (*policies.Policy, error) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return policies.Load(path)
	}
	mine, err := load("mine.toml", "version = 1\n[[egress.allow]]\nname = \"mine\"\nhosts = [\"api.example.com\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(11, 31))
	tried := map[string]int{}
	for range 30000 {
		use := map[string]bool{"": true, "[[egress.allow]] #api": true}
		choice := make([]int, len(fileKeys))
		for i, k := range fileKeys {
			use[k.table] = use[k.table] || r.IntN(8) == 0
			if r.IntN(6) == 0 {
				choice[i] = r.IntN(len(k.values))
			}
		}
		i := r.IntN(len(fileKeys))
		k := fileKeys[i]
		if len(k.values) == 1 || tried[k.table+k.key] >= 6 {
			continue
		}
		use[k.table] = true
		other := slices.Clone(choice)
		for other[i] == choice[i] {
			other[i] = r.IntN(len(k.values))
		}
		texts := [2]string{fileText(use, choice), fileText(use, other)}
		var sides [2]*policies.Policy
		way := [...]string{"plain", "included", "floor"}[r.IntN(3)]
		for side, text := range texts {
			if sides[side], err = policies.Parse("p.toml", []byte(text), nil); err != nil {
				break // these values don't go together
			}
			switch way {
			case "included":
				if _, err = load("p.toml", text); err == nil {
					sides[side], err = load("outer.toml", "version = 1\ninclude = [\"p.toml\"]\n")
				}
			case "floor":
				sides[side], err = policies.Tighten(sides[side], mine)
			}
			if err != nil {
				break
			}
		}
		if err != nil {
			continue
		}
		found, err := probe.Diff(sides[0], sides[1])
		if err != nil {
			t.Fatalf("%v\n%s\n%s", err, texts[0], texts[1])
		}
		// A floor's report mode does nothing under a policy that enforces.
		if found.Same() && (way != "floor" || k.key != "mode") {
			t.Errorf("%s %s, %s: %s and %s are called the same\n%s", k.table, k.key, way, k.values[choice[i]], k.values[other[i]], texts[0])
		}
		tried[k.table+k.key]++
	}
	for _, k := range fileKeys {
		if len(k.values) > 1 && tried[k.table+k.key] < 3 {
			t.Errorf("%s %s was changed %d times only", k.table, k.key, tried[k.table+k.key])
		}
	}
}

// TestDiffNamesWorkingDirectories: code for a shell beside one policy runs other files than beside another.
func TestDiffNamesWorkingDirectories(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	load := func(in, from string) *policies.Policy {
		t.Helper()
		path := filepath.Join(dir, in, "policy.toml")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		text := "version = 1\n[[egress.allow]]\nhosts = [\"a.example\"]\n[secrets.T]\nfrom = " + from + "\nhosts = [\"a.example\"]\nin = [\"basic\"]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := policies.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for from, differs := range map[string]bool{
		`["command:sh", "-c", ". ./token"]`: true,
		`["command:sh", "./token"]`:         true,
		`"command:make token"`:              true,
		`"command:nowhere-to-be-found sh"`:  false, // msb says so when it reads it
		`"command:/bin/echo a/token"`:       false, // it runs in /
		`"env:TOKEN"`:                       false,
	} {
		for other, want := range map[string]bool{"one": false, "two": differs, "one/below": differs} {
			found, err := probe.Diff(load("one", from), load(other, from))
			if err != nil {
				t.Fatal(err)
			}
			if found.Same() == want {
				t.Errorf("%s in %s: %+v", from, other, found)
			}
			if want && (found.Keys[0].Key != "secrets.T.from" || !strings.HasSuffix(found.Keys[0].After, " in "+filepath.Join(dir, other))) {
				t.Errorf("%s in %s: %+v", from, other, found.Keys)
			}
		}
	}
}
