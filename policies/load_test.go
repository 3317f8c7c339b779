package policies

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/hostname"
)

// parse parses a policy that stands in a test, with version = 1 put before it.
func parse(t *testing.T, text string) *Policy {
	t.Helper()
	p, err := Parse("test.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func ruleNamed(t *testing.T, p *Policy, name string) Rule {
	t.Helper()
	for _, r := range slices.Concat(p.Egress.Allow, p.Egress.Deny) {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no rule %q", name)
	return Rule{}
}

func TestLoadReadsEveryKey(t *testing.T) {
	t.Parallel()
	p, err := Load("testdata/full.toml")
	if err != nil {
		t.Fatal(err)
	}
	github := ruleNamed(t, p, "github")
	want := Rule{
		Name:     "github",
		Hosts:    []hostname.Pattern{hostname.MustParsePattern("api.github.com"), hostname.MustParsePattern("*.githubusercontent.com")},
		Ports:    []PortRange{{443, 443}},
		Protocol: HTTPS,
		Methods:  []string{"GET", "POST"},
		Paths:    []string{"/repos/acme/**"},
		Why:      "the code",
		Pos:      Position{"testdata/full.toml", 14, 1},
	}
	if !reflect.DeepEqual(github, want) {
		t.Errorf("github:\n got %+v\nwant %+v", github, want)
	}
	lab := ruleNamed(t, p, "lab database")
	if !lab.Private || lab.Protocol != TCP || lab.CIDRs[0] != netip.MustParsePrefix("10.20.0.0/16") {
		t.Errorf("lab database: %+v", lab)
	}
	if any := ruleNamed(t, p, "anything in the lab"); any.Protocol != Any || len(any.Ports) != 0 {
		t.Errorf("protocol any: %+v", any)
	}
	if p.Sandbox.Memory != 512<<20 || p.Sandbox.CPUs != 2 || len(p.Sandbox.Command) != 3 {
		t.Errorf("sandbox: %+v", p.Sandbox)
	}
	if p.DNS.MinTTL != 30*time.Second || p.DNS.MaxTTL != 2*time.Hour || len(p.DNS.Servers) != 5 {
		t.Errorf("dns: %+v", p.DNS)
	}
	if s := p.DNS.Servers[1]; s.Kind != ServerTLS || s.Addr.String() != "[2001:db8::1]:8853" || s.ServerName.String() != "dns.example" {
		t.Errorf("resolver: %+v", s)
	}
	if want := (Limits{100, 50, 20, 10 << 30, 100 << 20}); p.Limits != want {
		t.Errorf("limits: %+v, want %+v", p.Limits, want)
	}
	var names []string
	for _, s := range p.Secrets {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "GITHUB_TOKEN VAULT QUOTED AWS" {
		t.Errorf("secrets in the order %s", got)
	}
	if got := p.Secrets[0].In; !reflect.DeepEqual(got, []Place{{InHeader, "Authorization"}, {InBasic, ""}, {InQuery, "token"}, {InBody, ""}}) {
		t.Errorf("places: %v", got)
	}
	if got := p.Secrets[1].From; !reflect.DeepEqual(got, Source{Kind: FromCommand, Argv: []string{"vault", "read", "-field", "value", "x"}, TTL: 10 * time.Minute, RefreshOn401: true}) {
		t.Errorf("command: %+v", got)
	}
	if got := p.Secrets[3].From.Value; !filepath.IsAbs(got) || !strings.HasSuffix(got, "/policies/testdata/aws.txt") {
		t.Errorf("a relative file is %q", got)
	}
	if got := p.Hosts[0]; got.Name.String() != "registry.internal" || got.Target.String() != "127.0.0.1:5000" || got.Pos.Line == 0 {
		t.Errorf("first host: %+v", got)
	}
}

func TestAllowRulesGetProtocolAndPorts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rule, want string }{
		{`hosts = ["a.example"]`, "x https [443]"},
		{`hosts = ["a.example"]` + "\nports = [443]", "x https [443]"},
		{`hosts = ["a.example"]` + "\nports = [80]", "x http [80]"},
		{`hosts = ["a.example"]` + "\nports = [22, 5432]", "x tcp [22 5432]"},
		{`hosts = ["a.example"]` + "\nports = [80, 443]", "x (https) https [443]; x (http) http [80]"},
		{`hosts = ["a.example"]` + "\nports = [\"1-65535\"]", "x (https) https [443]; x (http) http [80]; x (tcp) tcp [1-79 81-442 444-65535]"},
		{`hosts = ["a.example"]` + "\nports = [8443]\nmethods = [\"GET\"]", "x https [8443]"},
		{`hosts = ["a.example"]` + "\nports = [80]\npaths = [\"/a\"]", "x http [80]"},
		{`hosts = ["a.example"]` + "\nprotocol = \"http\"", "x http [80]"},
		{`hosts = ["a.example"]` + "\nprotocol = \"tls\"", "x tls [443]"},
		{`hosts = ["a.example"]` + "\nprotocol = \"any\"", "x any []"},
		{`cidrs = ["8.8.8.0/24"]` + "\nports = [443]", "x tcp [443]"},
		{`cidrs = ["8.8.8.0/24"]` + "\nmethods = [\"GET\"]", "x https [443]"},
		{`cidrs = ["0.0.0.0/0", "::/0"]` + "\nprotocol = \"icmp\"", "x icmp []"},
	} {
		p := parse(t, "[[egress.allow]]\nname = \"x\"\n"+c.rule)
		var got []string
		for _, r := range p.Egress.Allow {
			got = append(got, strings.TrimSpace(r.Name+" "+r.Protocol.String()+" "+strings.ReplaceAll(tomlValue(r.Ports), ",", "")))
		}
		if g := strings.ReplaceAll(strings.Join(got, "; "), `"`, ""); g != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.rule, g, c.want)
		}
	}
}

func TestDenyRulesKeepTheWidestMeaning(t *testing.T) {
	t.Parallel()
	p := parse(t, "[[egress.deny]]\nhosts = [\"a.example\"]\n[[egress.deny]]\nports = [25]")
	for i, r := range p.Egress.Deny {
		if r.Protocol != Any || len(r.Ports) != i {
			t.Errorf("deny[%d]: %+v", i, r)
		}
	}
	if p.Egress.Deny[0].Name != "deny[0]" {
		t.Errorf("name %q", p.Egress.Deny[0].Name)
	}
}

func TestEmptyPolicyDenies(t *testing.T) {
	t.Parallel()
	p := parse(t, "")
	want := Default()
	want.File = "test.toml"
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	if p.Egress.Default != DefaultDeny || p.Egress.Mode != Enforce {
		t.Error("it doesn't deny")
	}
	if err := validate(Default()); err != nil {
		t.Error(err)
	}
}

func TestIncludesAreMergedInOrder(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"dir/a.toml": "version = 1\ninclude = [\"sub/c.toml\", \"pypi\"]\n[egress]\ndefault = \"public\"\n[limits]\nudp_flows = 7\n[[egress.allow]]\nname = \"a\"\nhosts = [\"a.example\"]\n[tls]\nbypass = [\"x.example\"]\n",
		"dir/b.toml": "version = 1\ninclude = [\"./sub/c.toml\"]\n[limits]\nudp_flows = 7\ntcp_connections = 8\n[tls]\nbypass = [\"x.example\"]\n",
		"dir/sub/c.toml": "version = 1\n[[egress.allow]]\nname = \"c\"\nhosts = [\"c.example\"]\n[secrets.T]\nfrom = \"file:t\"\nhosts = [\"c.example\"]\nin = [\"basic\"]\n" +
			"[egress]\nmode = \"report\"\n[hosts]\n\"c.internal\" = \"builtin:echo\"\n",
	}
	open := func(path string) ([]byte, error) {
		if text, ok := files[path]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	main := "version = 1\ninclude = [\"a.toml\", \"b.toml\"]\n[egress]\ndefault = \"deny\"\n[[egress.allow]]\nname = \"main\"\nhosts = [\"main.example\"]\n"
	p, err := Parse("dir/main.toml", []byte(main), open)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range p.Egress.Allow {
		names = append(names, r.Name)
	}
	if got := strings.Join(names, " "); got != "main a c pypi/index pypi/files" {
		t.Errorf("rules: %s", got)
	}
	if p.Egress.Default != DefaultDeny {
		t.Error("an included file overrides the one that includes it")
	}
	if p.Egress.Mode != Report || p.Limits.UDPFlows != 7 || p.Limits.TCPConnections != 8 {
		t.Errorf("scalars of included files are lost: %v %+v", p.Egress.Mode, p.Limits)
	}
	if len(p.TLS.Bypass) != 1 || len(p.Secrets) != 1 || p.Secrets[0].From.Value != "dir/sub/t" || len(p.Hosts) != 1 {
		t.Errorf("lists: %v %+v %v", p.TLS.Bypass, p.Secrets, p.Hosts)
	}
	if got := ruleNamed(t, p, "c").Pos.String(); got != "dir/sub/c.toml:2:1" {
		t.Errorf("place of an included rule: %s", got)
	}
}

// A deny may take something out of a preset, which in one file would be a rule
// that can never match.
func TestDenyingAPresetsNameIsAccepted(t *testing.T) {
	t.Parallel()
	if p := parse(t, "include = [\"github\"]\n[[egress.deny]]\nhosts = [\"github.com\"]\n"); len(p.Egress.Deny) != 1 {
		t.Errorf("%+v", p.Egress)
	}
}

func TestLoadErrors(t *testing.T) {
	t.Parallel()
	if _, err := Load("testdata/nowhere.toml"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Load("testdata"); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("a directory: %v", err)
	}
	_, err := Load("testdata/errors/version.toml")
	var list ErrorList
	var one Error
	if !errors.As(err, &list) || !errors.As(err, &one) || one.Line != 1 || one.Key != "version" {
		t.Errorf("error is %#v", err)
	}
	if _, err := Parse("x", []byte("version = 1\ninclude = [\"a.toml\"]"), nil); err == nil {
		t.Error("a file was included without an opener")
	}
}

func TestI12_HugeAndDeepFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long":         strings.Repeat("#", maxFile+1),
		"deep arrays":  "version = " + strings.Repeat("[", maxFile-100),
		"deep tables":  "version = " + strings.Repeat("{a=", maxFile/3-100),
		"deep headers": "[" + strings.Repeat("a.", maxFile/2-100) + "a]",
		"many faults":  strings.Repeat("[[egress.allow]]\n", 5000),
		"one long key": "[" + strings.Repeat("a", maxFile/2) + "]\n" + strings.Repeat("a=1\n", 1),
		"long secret":  "[secrets." + strings.Repeat("a", maxFile/2) + "]\n" + manyKeys(maxFile/20),
		"long quoted":  "[secrets.\"" + strings.Repeat("a", maxFile/2) + "\"]\n" + manyKeys(maxFile/20),
		"long inline":  "hosts = {\"" + strings.Repeat("a", maxFile/2) + "\" = {" + strings.ReplaceAll(manyKeys(maxFile/20), "\n", ",") + "a=1}}",
		"many keys":    "[hosts]\n" + strings.Repeat("a", 60000) + " = 1\n",
	} {
		p, err := Parse("x.toml", []byte(text), nil)
		if err == nil || p != nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		if n := strings.Count(err.Error(), "\n"); n > maxFaults {
			t.Errorf("%s: %d lines of errors", name, n)
		}
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d=1\n", i)
	}
	return b.String()
}

func TestIncludesAreBounded(t *testing.T) {
	t.Parallel()
	open := func(path string) ([]byte, error) { // every file includes a new one
		return []byte("version = 1\ninclude = [\"x" + path + "\"]"), nil
	}
	_, err := Parse("x.toml", []byte("version = 1\ninclude = [\"xx.toml\"]"), open)
	if err == nil || !strings.Contains(err.Error(), "more than 64 files") {
		t.Errorf("error is %v", err)
	}
}

func TestValidateChecksPoliciesMadeInCode(t *testing.T) {
	t.Parallel()
	good, err := ParseAllowFlag("a.example:443")
	if err != nil {
		t.Fatal(err)
	}
	p := Default()
	p.Egress.Allow = []Rule{good}
	if err := validate(p); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Policy){
		"two of a name":  func(p *Policy) { p.Egress.Allow = append(p.Egress.Allow, p.Egress.Allow[0]) },
		"no destination": func(p *Policy) { p.Egress.Allow[0].Hosts = nil },
		"no ports":       func(p *Policy) { p.Egress.Allow[0].Ports = nil },
		"empty range":    func(p *Policy) { p.Egress.Allow[0].Ports = []PortRange{{5, 4}} },
		"mapped range": func(p *Policy) {
			p.Egress.Allow[0].Hosts, p.Egress.Allow[0].CIDRs = nil, []netip.Prefix{netip.MustParsePrefix("::ffff:8.8.8.0/120")}
		},
		"no resolver": func(p *Policy) { p.DNS.Servers = nil },
		"no source":   func(p *Policy) { p.Secrets = []Secret{{Name: "X", Placeholder: "{20}"}} },
		"proxy":       func(p *Policy) { p.TLS.Via = "x" },
		"floor":       func(p *Policy) { p.Floor = &Policy{} },
		"empty deny":  func(p *Policy) { p.Egress.Deny = []Rule{{Name: "d"}} },
	} {
		p := Default()
		r := good
		p.Egress.Allow = []Rule{r}
		spoil(p)
		if err := validate(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
