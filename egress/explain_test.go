package egress

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/policies"
)

// explained are policies with flows. testdata/explain.golden has the steps of each judgement.
var explained = []struct {
	name, text, floor string
	flows             []string
	more              map[string][]func(*Flow)
}{
	{name: "example", text: example, flows: []string{
		"tcp 93.184.215.14:443", "udp 93.184.215.14:443", "icmp 93.184.215.14", "tcp 10.20.1.1:5432", "udp 10.20.1.1:5432", "tcp 10.21.1.1:5432",
		"tcp 127.0.0.1:80", "tcp 169.254.169.254:80", "tcp 1.1.1.1:853", "tcp [::ffff:93.184.215.14]:443",
	}, more: map[string][]func(*Flow){
		"tcp 93.184.215.14:443 github":           {pinned("api.github.com")},
		"tcp 93.184.215.14:80 github":            {pinned("api.github.com")},
		"udp 93.184.215.14:443 github":           {pinned("api.github.com")},
		"tcp 93.184.215.14:443 pypi, hello":      {pinned("pypi.org"), said(AppTLS, "pypi.org")},
		"tcp 93.184.215.14:443 pypi, other SNI":  {pinned("pypi.org"), said(AppTLS, "api.github.com")},
		"tcp 93.184.215.14:443 pypi, ECH":        {pinned("pypi.org"), said(AppTLS, "pypi.org"), ech},
		"tcp 93.184.215.14:443 pypi, no SNI":     {pinned("pypi.org"), said(AppTLS, "")},
		"tcp 93.184.215.14:443 pypi, silent":     {pinned("pypi.org"), said(AppSilent, "")},
		"tcp 93.184.215.14:443 pypi, HTTP":       {pinned("pypi.org"), said(AppHTTP, "pypi.org")},
		"tcp 93.184.215.14:22 ssh":               {pinned("git.example")},
		"icmp 93.184.215.14 ping":                {pinned("git.example")},
		"udp 93.184.215.14:123 time":             {pinned("ntp.example")},
		"tcp 93.184.215.14:80 mirror":            {pinned("mirror.example")},
		"tcp 93.184.215.14:443 gist":             {pinned("gist.githubusercontent.com")},
		"tcp 93.184.215.14:443 gist and another": {pinned("gist.githubusercontent.com", "raw.githubusercontent.com")},
		"tcp 93.184.215.14:443 GET":              {pinned("api.github.com"), request(AppTLS, "api.github.com", "GET", "/repos/acme/x")},
		"tcp 93.184.215.14:443 PUT":              {pinned("api.github.com"), request(AppTLS, "api.github.com", "PUT", "/repos/acme/x")},
		"tcp 93.184.215.14:443 other path":       {pinned("api.github.com"), request(AppTLS, "api.github.com", "GET", "/user")},
		"tcp 93.184.215.14:443 ambiguous path":   {pinned("api.github.com"), request(AppTLS, "api.github.com", "GET", "/repos/acme/%2e%2e/x")},
		"tcp 93.184.215.14:443 not pinned":       {pinned("pypi.org"), request(AppTLS, "api.github.com", "GET", "/repos/acme/x")},
		"tcp 93.184.215.14:443 no Host":          {pinned("api.github.com"), request(AppTLS, "", "GET", "/repos/acme/x")},
		"tcp 198.18.0.2:5000 [hosts]":            {mapped("registry.internal")},
		"tcp 198.18.0.2:443 [hosts] and a rule":  {mapped("api.internal")},
		"tcp 198.18.0.2:80 [hosts], other port":  {mapped("api.internal")},
		"tcp 198.18.0.2:80 no such [hosts]":      {mapped("gone.internal")},
		"tcp 93.184.215.14:443 local":            {func(f *Flow) { f.Local = true }},
		"tcp 93.184.215.14:443 invalid protocol": {func(f *Flow) { f.Proto = ICMP + 1 }},
		"tcp 93.184.215.14:443 no protocol":      {func(f *Flow) { f.Proto = 0 }},
		"tcp 93.184.215.14:443 invalid stage":    {func(f *Flow) { f.Stage = StageRequest + 1 }},
		"tcp 93.184.215.14:443 no App":           {func(f *Flow) { f.Stage = StageName }},
		"tcp 93.184.215.14:443 opaque request":   {func(f *Flow) { f.Stage, f.App = StageRequest, AppOpaque }},
		"tcp 93.184.215.14:443 no address":       {func(f *Flow) { f.Dst = netip.AddrPort{} }},
		"udp 93.184.215.14:443 with a name":      {said(AppTLS, "pypi.org")},
	}},
	{name: "public, with deny rules, a secret and bypass", text: `
[egress]
default = "public"
[[egress.allow]]
name = "api"
hosts = ["api.example.com"]
protocol = "https"
[[egress.allow]]
name = "wiki"
hosts = ["wiki.corp.example"]
within = ["10.30.0.0/16"]
protocol = "https"
[[egress.deny]]
name = "uploads"
hosts = ["files.example.com"]
methods = ["PUT"]
[[egress.deny]]
name = "net"
cidrs = ["93.184.216.0/24"]
[secrets.TOKEN]
from = "env:TOKEN"
hosts = ["api.example.com"]
in = ["header:Authorization"]
[tls]
bypass = ["pinned.example.com"]
`, flows: []string{"tcp 93.184.215.14:443", "tcp 93.184.215.14:22", "udp 93.184.215.14:443", "udp 93.184.215.14:5000", "icmp 93.184.215.14", "tcp 93.184.216.1:443", "tcp 10.30.0.1:443", "udp 1.1.1.1:853"},
		more: map[string][]func(*Flow){
			"tcp 93.184.215.14:443 api":          {pinned("api.example.com")},
			"tcp 93.184.215.14:443 api, hello":   {pinned("api.example.com"), said(AppTLS, "api.example.com")},
			"tcp 93.184.215.14:443 files":        {pinned("files.example.com")},
			"tcp 93.184.215.14:443 files, hello": {pinned("files.example.com"), said(AppTLS, "files.example.com")},
			"tcp 93.184.215.14:80 files, head":   {pinned("files.example.com"), said(AppHTTP, "files.example.com")},
			"tcp 93.184.215.14:80 files, PUT":    {pinned("files.example.com"), request(AppHTTP, "files.example.com", "PUT", "/")},
			"tcp 93.184.215.14:80 files, GET":    {pinned("files.example.com"), request(AppHTTP, "files.example.com", "GET", "/")},
			"tcp 93.184.215.14:443 ECH":          {said(AppTLS, "x.example.com"), ech},
			"tcp 93.184.215.14:443 unclear":      {said(AppOpaque, ""), func(f *Flow) { f.Unclear = true }},
			"tcp 10.30.0.1:443 wiki":             {pinned("wiki.corp.example")},
			"udp 10.30.0.1:443 wiki":             {pinned("wiki.corp.example")},
			"tcp 10.31.0.1:443 wiki":             {pinned("wiki.corp.example")},
		}},
	{name: "report mode", text: "[egress]\nmode = \"report\"\n[[egress.allow]]\nname = \"web\"\nhosts = [\"web.example.com\"]\n",
		flows: []string{"tcp 93.184.215.14:443", "tcp 10.0.0.1:443"}, more: map[string][]func(*Flow){
			"tcp 93.184.215.14:443 not pinned": {pinned("web.example.com"), request(AppTLS, "other.example.com", "GET", "/")},
		}},
	{name: "under a floor", text: "[egress]\ndefault = \"public\"\n", floor: "[[egress.allow]]\nname = \"web\"\nhosts = [\"web.example.com\"]\n[[egress.deny]]\nname = \"bad\"\nhosts = [\"bad.example.com\"]\nwhy = \"it is bad\"\n",
		flows: []string{"tcp 93.184.215.14:443", "tcp 10.0.0.1:443"}, more: map[string][]func(*Flow){
			"tcp 93.184.215.14:443 web": {pinned("web.example.com")},
			"tcp 93.184.215.14:443 bad": {pinned("bad.example.com")},
		}},
}

func TestExplainTellsEachStep(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, x := range explained {
		p := load(t, x.text)
		if x.floor != "" {
			p.Floor = load(t, x.floor)
		}
		e := mustEngine(t, p, WithClassifier(NewClassifier()))
		fmt.Fprintf(&b, "# %s\n", x.name)
		for _, s := range x.flows {
			tell(&b, e, s, flow(s))
		}
		for _, s := range sortedKeys(x.more) {
			proto, dst, _ := strings.Cut(s, " ")
			dst, _, _ = strings.Cut(dst, " ")
			tell(&b, e, s, flow(proto+" "+dst, x.more[s]...))
		}
	}
	path := filepath.Join("testdata", "explain.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(lines)) {
		if i >= len(got) || i >= len(lines) || got[i] != lines[i] {
			t.Fatalf("%s:%d differs; look at the change and run go test -update\ngot  %q\nwant %q", path, i+1, got[min(i, len(got)-1)], lines[min(i, len(lines)-1)])
		}
	}
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// tell writes how a flow was judged, without the steps that every flow has alike.
func tell(b *strings.Builder, e *Engine, name string, f Flow) {
	v, steps := e.Explain(&f)
	fmt.Fprintf(b, "%s\n  %s %s\n", name, v.Action, v.Message())
	for _, s := range steps {
		fmt.Fprintf(b, "    %s: %s\n", s.What, s.Result)
	}
}

// TestCheckNamesFindsDeadRules has names that the resolver never looks up beside those that it may.
func TestCheckNamesFindsDeadRules(t *testing.T) {
	t.Parallel()
	for host, never := range map[string]bool{
		"localhost": true, "metadata.google.internal": true, "1.168.192.in-addr.arpa": true, "*.168.192.in-addr.arpa": true,
		"*.d.f.ip6.arpa": true, "mapped.localhost": false, "*.mapped.localhost": false, "*.localhost": false,
		"web.example.com": false, "*.example.com": false, "*": false, "*.in-addr.arpa": false, "8.8.8.8.in-addr.arpa": false,
	} {
		p := &policies.Policy{
			Hosts:  []policies.HostMapping{{Name: names("mapped.localhost")[0]}, {Name: names("a.mapped.localhost")[0]}},
			Egress: policies.EgressRules{Allow: []policies.Rule{{Name: "r", Hosts: patterns("fine.example.com", host), Pos: policies.Position{File: "f", Line: 7, Col: 3}}}},
		}
		err := CheckNames(p)
		if (err != nil) != never || never && (!strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), "f:7:3")) {
			t.Errorf("%s: %v, want an error: %v", host, err, never)
		}
	}
}
