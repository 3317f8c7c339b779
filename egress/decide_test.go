package egress

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// load parses the text of a policy, so that these cases read as users write.
func load(t *testing.T, text string) *policies.Policy {
	t.Helper()
	p, err := policies.Parse("policy.toml", []byte("version = 1\n"+text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// flow is a builder: "tcp 93.184.215.14:443", then what else is known.
func flow(s string, change ...func(*Flow)) Flow {
	proto, dst, _ := strings.Cut(s, " ")
	f := Flow{Proto: map[string]Proto{"tcp": TCP, "udp": UDP, "icmp": ICMP}[proto]}
	if f.Proto == ICMP {
		f.Dst = netip.AddrPortFrom(netip.MustParseAddr(dst), 0)
	} else {
		f.Dst = netip.MustParseAddrPort(dst)
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func pinned(n ...string) func(*Flow) { return func(f *Flow) { f.Pinned = names(n...) } }

func mapped(n string) func(*Flow) {
	return func(f *Flow) { f.Pinned, f.Mapped = names(n), true }
}

func said(app App, n string) func(*Flow) {
	return func(f *Flow) {
		f.Stage, f.App = StageName, app
		if n != "" {
			f.Name = hostname.MustParse(n)
		}
	}
}

func request(app App, n, method, path string) func(*Flow) {
	return func(f *Flow) {
		said(app, n)(f)
		f.Stage, f.Method, f.Path = StageRequest, method, path
	}
}

func ech(f *Flow) { f.ECH = true }

const example = `
[egress]
default = "deny"
[[egress.allow]]
name = "github"
hosts = ["api.github.com", "*.githubusercontent.com"]
ports = [443]
protocol = "https"
methods = ["GET", "POST"]
paths = ["/repos/acme/**"]
[[egress.allow]]
name = "pypi"
hosts = ["pypi.org"]
[[egress.allow]]
name = "ssh"
hosts = ["git.example"]
ports = [22]
protocol = "tcp"
[[egress.allow]]
name = "mail"
hosts = ["mail.example"]
ports = [993]
protocol = "tls"
[[egress.allow]]
name = "mirror"
hosts = ["mirror.example"]
ports = [80]
protocol = "http"
[[egress.allow]]
name = "lab database"
cidrs = ["10.20.0.0/16"]
ports = [5432]
protocol = "tcp"
private = true
[[egress.allow]]
name = "time"
hosts = ["ntp.example"]
ports = [123]
protocol = "udp"
[[egress.allow]]
name = "ping"
hosts = ["git.example"]
protocol = "icmp"
[[egress.deny]]
name = "no gists"
hosts = ["gist.githubusercontent.com"]
[hosts]
"registry.internal" = "127.0.0.1:5000"
"api.internal" = "127.0.0.1:8443"
[[egress.allow]]
name = "internal api"
hosts = ["api.internal"]
ports = [443]
protocol = "https"
methods = ["GET"]
`

type decideCase struct {
	name   string
	f      Flow
	action Action
	reason Reason
	rule   string
}

func checkDecide(t *testing.T, e *Engine, tests []decideCase) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v := e.Decide(&tt.f)
			if v.Action != tt.action || v.Reason != tt.reason || v.Rule != tt.rule {
				t.Errorf("got %v %v %q (%s), want %v %v %q", v.Action, v.Reason, v.Rule, v.Message(), tt.action, tt.reason, tt.rule)
			}
		})
	}
}

func TestDecideUnderDefaultDeny(t *testing.T) {
	t.Parallel()
	const addr = "tcp 140.82.112.5:443"
	gh := pinned("api.github.com")
	checkDecide(t, mustEngine(t, load(t, example), WithClassifier(worldClassifier())), []decideCase{
		{"unknown address", flow("tcp 93.184.215.14:443"), Deny, ReasonNoRule, ""},
		{"unknown name", flow("tcp 93.184.215.14:443", pinned("evil.example")), Deny, ReasonNoRule, ""},
		{"inspected rule at connect", flow(addr, gh), Inspect, ReasonNeedsRequest, "github"},
		{"inspected rule at name", flow(addr, gh, said(AppTLS, "api.github.com")), Inspect, ReasonNeedsRequest, "github"},
		{"request allowed", flow(addr, gh, request(AppTLS, "api.github.com", "GET", "/repos/acme/msb?x=1")), Allow, ReasonRule, "github"},
		{"method not allowed", flow(addr, gh, request(AppTLS, "api.github.com", "DELETE", "/repos/acme/msb")), Deny, ReasonMethod, "github"},
		{"path not allowed", flow(addr, gh, request(AppTLS, "api.github.com", "GET", "/repos/evil/msb")), Deny, ReasonPath, "github"},
		{"path unclear", flow(addr, gh, request(AppTLS, "api.github.com", "GET", "/repos/acme/../evil")), Deny, ReasonPathAmbiguous, "github"},
		{"wrong port", flow("tcp 140.82.112.5:8443", gh), Deny, ReasonPort, "github"},
		{"plain HTTP to 443", flow(addr, gh, said(AppHTTP, "api.github.com")), Deny, ReasonProtocol, "github"},
		{"opaque to 443", flow(addr, gh, said(AppOpaque, "")), Deny, ReasonProtocol, "github"},
		{"no SNI", flow(addr, gh, said(AppTLS, "")), Deny, ReasonNoName, "github"},
		{"SNI allowed, pinned elsewhere", flow(addr, gh, said(AppTLS, "pypi.org")), Deny, ReasonNotPinned, ""},
		{"SNI not allowed", flow(addr, gh, said(AppTLS, "evil.example")), Deny, ReasonNoRule, ""},
		{"ECH with an allowed outer name", flow(addr, gh, said(AppTLS, "api.github.com"), ech), Deny, ReasonECH, "github"},
		{"request for a name that isn't pinned", flow(addr, gh, request(AppTLS, "pypi.org", "GET", "/")), Deny, ReasonNotPinned, ""},
		{"plain https rule, beside deny rules by name", flow(addr, pinned("pypi.org")), Inspect, ReasonNeedsRequest, "pypi"},
		{"and with the name known", flow(addr, pinned("pypi.org"), said(AppTLS, "pypi.org")), Inspect, ReasonNeedsRequest, "pypi"},
		{"QUIC to an https name", flow("udp 140.82.112.5:443", pinned("pypi.org")), Deny, ReasonQUIC, "pypi"},
		{"tcp rule needs no name", flow("tcp 140.82.112.9:22", pinned("git.example")), Allow, ReasonRule, "ssh"},
		{"tcp rule and another name", flow("tcp 140.82.112.9:22", pinned("evil.example")), Deny, ReasonNoRule, ""},
		{"tls rule peeks", flow("tcp 140.82.112.9:993", pinned("mail.example")), Peek, ReasonNeedsName, "mail"},
		{"tls rule relays", flow("tcp 140.82.112.9:993", pinned("mail.example"), said(AppTLS, "mail.example")), Allow, ReasonRule, "mail"},
		{"http rule is judged by request", flow("tcp 140.82.112.9:80", pinned("mirror.example")), Inspect, ReasonNeedsRequest, "mirror"},
		{"http request", flow("tcp 140.82.112.9:80", pinned("mirror.example"), request(AppHTTP, "mirror.example", "GET", "/x")), Allow, ReasonRule, "mirror"},
		{"http request to another host", flow("tcp 140.82.112.9:80", pinned("mirror.example"), request(AppHTTP, "evil.example", "GET", "/x")), Deny, ReasonNotPinned, ""},
		{"TLS to port 80", flow("tcp 140.82.112.9:80", pinned("mirror.example"), said(AppTLS, "mirror.example")), Deny, ReasonProtocol, "mirror"},
		{"udp rule", flow("udp 140.82.112.9:123", pinned("ntp.example")), Allow, ReasonRule, "time"},
		{"ping rule", flow("icmp 140.82.112.9", pinned("git.example")), Allow, ReasonRule, "ping"},
		{"ping of another", flow("icmp 140.82.112.9", pinned("pypi.org")), Deny, ReasonPort, "pypi"},
		{"deny beats allow", flow(addr, pinned("gist.githubusercontent.com")), Deny, ReasonDenyRule, "no gists"},
		{"shared address with a denied name", flow(addr, pinned("gist.githubusercontent.com", "raw.githubusercontent.com")), Inspect, ReasonNeedsRequest, "github"},
		{"shared address, denied name said", flow(addr, pinned("gist.githubusercontent.com", "raw.githubusercontent.com"), said(AppTLS, "gist.githubusercontent.com")), Deny, ReasonDenyRule, "no gists"},
		{"shared address, other name said", flow(addr, pinned("gist.githubusercontent.com", "raw.githubusercontent.com"), said(AppTLS, "raw.githubusercontent.com")), Inspect, ReasonNeedsRequest, "github"},
		{"private rule", flow("tcp 10.20.1.1:5432"), Allow, ReasonRule, "lab database"},
		{"private rule in v4-mapped form", flow("tcp [::ffff:10.20.1.1]:5432"), Allow, ReasonRule, "lab database"},
		{"private address, other port", flow("tcp 10.20.1.1:22"), Deny, ReasonSpecialAddress, ""},
		{"private address, allowed name", flow("tcp 10.0.0.1:443", pinned("api.github.com")), Deny, ReasonSpecialAddress, ""},
		{"metadata", flow("tcp 169.254.169.254:80", pinned("pypi.org")), Deny, ReasonMetadata, ""},
		{"loopback", flow("tcp 127.0.0.1:22", pinned("git.example")), Deny, ReasonHostAddress, ""},
		{"host's own public address", flow("tcp 93.184.215.77:22", pinned("git.example")), Deny, ReasonHostAddress, ""},
		{"[hosts] without a rule", flow("tcp 198.18.0.2:5000", mapped("registry.internal")), Peek, ReasonNeedsName, "hosts.registry.internal"},
		{"[hosts] address without its mapping", flow("tcp 198.18.0.2:5000", pinned("registry.internal")), Deny, ReasonSpecialAddress, ""},
		{"[hosts] of no mapped name", flow("tcp 198.18.0.9:5000", mapped("evil.internal")), Deny, ReasonHostAddress, ""},
		{"[hosts] with a rule", flow("tcp 198.18.0.3:443", mapped("api.internal")), Inspect, ReasonNeedsRequest, "internal api"},
		{"[hosts] with a rule, other port", flow("tcp 198.18.0.3:22", mapped("api.internal")), Deny, ReasonPort, "internal api"},
		{"port 853", flow("tcp 140.82.112.5:853", pinned("pypi.org")), Deny, ReasonPort, "pypi"},
	})
}

func TestDecideUnderDefaultPublic(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, `
[egress]
default = "public"
[[egress.deny]]
name = "no gists"
hosts = ["gist.github.com"]
[[egress.deny]]
name = "no net"
cidrs = ["203.0.114.0/24"]
`), WithClassifier(worldClassifier()))
	checkDecide(t, e, []decideCase{
		{"any address, port without names", flow("tcp 93.184.215.14:2222"), Allow, ReasonDefaultPublic, ""},
		{"443 is peeked at for the deny rule", flow("tcp 93.184.215.14:443"), Peek, ReasonNeedsName, ""},
		{"name not denied", flow("tcp 93.184.215.14:443", said(AppTLS, "example.com")), Allow, ReasonDefaultPublic, ""},
		{"no name", flow("tcp 93.184.215.14:443", said(AppTLS, "")), Allow, ReasonDefaultPublic, ""},
		{"denied name at an address of another", flow("tcp 93.184.215.14:443", pinned("github.com"), said(AppTLS, "gist.github.com")), Deny, ReasonDenyRule, "no gists"},
		{"hidden name", flow("tcp 93.184.215.14:443", said(AppTLS, "example.com"), ech), Deny, ReasonECH, ""},
		{"QUIC hides names", flow("udp 93.184.215.14:443"), Deny, ReasonQUIC, ""},
		{"http is judged by request", flow("tcp 93.184.215.14:80", pinned("example.com"), said(AppHTTP, "example.com")), Inspect, ReasonNeedsRequest, ""},
		{"second request to a denied host", flow("tcp 93.184.215.14:80", pinned("example.com"), request(AppHTTP, "gist.github.com", "GET", "/")), Deny, ReasonDenyRule, "no gists"},
		{"denied net", flow("tcp 203.0.114.7:22"), Deny, ReasonDenyRule, "no net"},
		{"denied net through NAT64", flow("tcp [64:ff9b::203.0.114.7]:22"), Deny, ReasonDenyRule, "no net"},
		{"private stays shut", flow("tcp 10.0.0.1:22"), Deny, ReasonSpecialAddress, ""},
		{"host stays shut", flow("tcp 93.184.215.77:22"), Deny, ReasonHostAddress, ""},
		{"DNS over TLS", flow("tcp 93.184.215.14:853"), Deny, ReasonEncryptedDNS, ""},
		{"DNS over QUIC", flow("udp 93.184.215.14:853"), Deny, ReasonEncryptedDNS, ""},
		{"DNS over HTTPS by address", flow("tcp 8.8.8.8:443"), Deny, ReasonEncryptedDNS, ""},
		{"DNS over HTTPS by name", flow("tcp 93.184.215.14:443", said(AppTLS, "dns.google")), Deny, ReasonEncryptedDNS, ""},
		{"ping of a resolver", flow("icmp 8.8.8.8"), Allow, ReasonDefaultPublic, ""},
		{"ping", flow("icmp 93.184.215.14"), Allow, ReasonDefaultPublic, ""},
	})
}

func TestEncryptedDNSNeedsItsName(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, `
[[egress.allow]]
name = "wide"
hosts = ["*.google"]
[[egress.allow]]
name = "net"
cidrs = ["9.9.0.0/16"]
ports = ["1-65535"]
protocol = "tcp"
[[egress.allow]]
name = "quad9"
hosts = ["dns.quad9.net"]
[[egress.allow]]
name = "dot"
cidrs = ["149.112.0.0/16"]
ports = [853]
protocol = "tcp"
`))
	checkDecide(t, e, []decideCase{
		{"wildcard doesn't name it", flow("tcp 8.8.8.8:443", pinned("dns.google")), Deny, ReasonEncryptedDNS, "wide"},
		{"net doesn't name it", flow("tcp 9.9.9.9:443"), Deny, ReasonEncryptedDNS, "net"},
		{"net doesn't name 853", flow("tcp 9.9.1.1:853"), Deny, ReasonEncryptedDNS, "net"},
		{"other ports of the net", flow("tcp 9.9.1.1:22"), Allow, ReasonRule, "net"},
		{"named", flow("tcp 9.9.9.9:443", pinned("dns.quad9.net")), Peek, ReasonNeedsName, "quad9"},
		{"port 853 named", flow("tcp 149.112.112.112:853"), Allow, ReasonRule, "dot"},
	})
	for n, want := range map[string]Action{"dns.google": Deny, "www.dns.google": Allow, "dns.quad9.net": Allow, "cloudflare-dns.com": Deny} {
		if v := e.DecideName(hostname.MustParse(n)); v.Action != want {
			t.Errorf("%s: %v, want %v", n, v.Message(), want)
		}
	}
}

const secretPolicy = `
[[egress.allow]]
name = "api"
hosts = ["api.example", "pinned.example"]
[[egress.allow]]
name = "raw"
hosts = ["api.example", "other.example"]
ports = ["1-1024"]
protocol = "tcp"
[tls]
bypass = ["pinned.example"]
[secrets.TOKEN]
from = "env:TOKEN"
hosts = ["api.example"]
in = ["header:Authorization"]
placeholder = "tok_{36}"
`

func TestI9_SecretHostsAreInspected(t *testing.T) {
	t.Parallel()
	const addr = "tcp 93.184.215.14:443"
	checkDecide(t, mustEngine(t, load(t, secretPolicy)), []decideCase{
		{"peeked at although a tcp rule allows it", flow(addr, pinned("api.example")), Peek, ReasonNeedsName, "api"},
		{"TLS is opened", flow(addr, pinned("api.example"), said(AppTLS, "api.example")), Inspect, ReasonNeedsRequest, "api"},
		{"what isn't TLS goes by the tcp rule", flow(addr, pinned("api.example"), said(AppOpaque, "")), Allow, ReasonRule, "raw"},
		{"hidden name goes by the tcp rule, unopened", flow(addr, pinned("api.example"), said(AppTLS, "api.example"), ech), Allow, ReasonRule, "raw"},
		{"no secret, no peek", flow(addr, pinned("other.example")), Allow, ReasonRule, "raw"},
		{"bypass is never opened", flow(addr, pinned("pinned.example"), said(AppTLS, "pinned.example")), Allow, ReasonRule, "api"},
		{"nor at a request", flow(addr, pinned("pinned.example"), request(AppTLS, "pinned.example", "GET", "/")), Deny, ReasonInspectionOff, ""},
	})
}

func TestRequestLevelDenyRules(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, `
[[egress.allow]]
name = "api"
hosts = ["api.example"]
[[egress.deny]]
name = "no admin"
hosts = ["api.example"]
protocol = "https"
paths = ["/admin/**"]
[[egress.deny]]
name = "no deletes"
hosts = ["api.example"]
methods = ["DELETE"]
`))
	const addr = "tcp 93.184.215.14:443"
	api := pinned("api.example")
	checkDecide(t, e, []decideCase{
		{"connect", flow(addr, api), Inspect, ReasonNeedsRequest, "api"},
		{"opened to see requests", flow(addr, api, said(AppTLS, "api.example")), Inspect, ReasonNeedsRequest, "no admin"},
		{"other path", flow(addr, api, request(AppTLS, "api.example", "GET", "/users")), Allow, ReasonRule, "api"},
		{"denied path", flow(addr, api, request(AppTLS, "api.example", "GET", "/admin/x")), Deny, ReasonDenyRule, "no admin"},
		{"in another case", flow(addr, api, request(AppTLS, "api.example", "GET", "/Admin/x")), Deny, ReasonDenyRule, "no admin"},
		{"denied method", flow(addr, api, request(AppTLS, "api.example", "DELETE", "/x")), Deny, ReasonDenyRule, "no deletes"},
		{"denied method in another case", flow(addr, api, request(AppTLS, "api.example", "dElete", "/x")), Deny, ReasonDenyRule, "no deletes"},
		{"encoded", flow(addr, api, request(AppTLS, "api.example", "GET", "/%61dmin/x")), Deny, ReasonDenyRule, "no admin"},
		{"unclear", flow(addr, api, request(AppTLS, "api.example", "GET", "//admin/x")), Deny, ReasonPathAmbiguous, "no admin"},
	})
}

// Of several deny rules, verdicts name the one that stands first, whether it goes by name or by address.
func TestVerdictsNameTheFirstDenyRule(t *testing.T) {
	t.Parallel()
	const byName, byRange, byAddr = "[[egress.deny]]\nname = \"name\"\nhosts = [\"api.example\"]\n", "[[egress.deny]]\nname = \"range\"\ncidrs = [\"93.184.215.0/24\"]\n",
		"[[egress.deny]]\nname = \"address\"\ncidrs = [\"93.184.215.14/32\"]\n"
	f := flow("tcp 93.184.215.14:443", pinned("api.example"))
	for rules, want := range map[string]string{
		byName + byRange + byAddr: "name", byRange + byName + byAddr: "range", byAddr + byName + byRange: "address", byAddr + byRange + byName: "address",
	} {
		if v := mustEngine(t, load(t, rules)).Decide(&f); v.Action != Deny || v.Rule != want {
			t.Errorf("%v %q, want a denial by %q", v.Action, v.Rule, want)
		}
	}
}

func TestReportModeKeepsReservedShut(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, strings.Replace(example, `default = "deny"`, "default = \"deny\"\nmode = \"report\"", 1)), WithClassifier(worldClassifier()))
	for _, tt := range []struct {
		f      Flow
		action Action
		would  bool
		reason Reason
	}{
		{flow("tcp 93.184.215.14:443"), Allow, true, ReasonNoRule},
		{flow("tcp 93.184.215.14:443", pinned("gist.githubusercontent.com")), Allow, true, ReasonDenyRule},
		{flow("tcp 10.0.0.1:443"), Deny, false, ReasonSpecialAddress},
		{flow("tcp 169.254.169.254:80"), Deny, false, ReasonMetadata},
		{flow("tcp 93.184.215.77:80"), Deny, false, ReasonHostAddress},
		{flow("tcp 140.82.112.5:443", pinned("pypi.org")), Inspect, false, ReasonNeedsRequest},
		{flow("tcp 140.82.112.5:443", pinned("api.github.com"), request(AppTLS, "api.github.com", "DELETE", "/")), Allow, true, ReasonMethod},
		{flow("tcp 140.82.112.5:443", pinned("api.github.com"), request(AppTLS, "evil.example", "GET", "/")), Deny, false, ReasonNotPinned},
	} {
		if v := e.Decide(&tt.f); v.Action != tt.action || v.WouldDeny != tt.would || v.Reason != tt.reason {
			t.Errorf("%+v: %v would=%v %v, want %v %v %v", tt.f, v.Action, v.WouldDeny, v.Reason, tt.action, tt.would, tt.reason)
		}
	}
	for n, want := range map[string]Verdict{
		"evil.example":             {Action: Allow, WouldDeny: true, Reason: ReasonNoRule},
		"localhost":                {Action: Deny, Reason: ReasonLocalName},
		"metadata.google.internal": {Action: Deny, Reason: ReasonMetadataName},
	} {
		v := e.DecideName(hostname.MustParse(n))
		if v.Action != want.Action || v.WouldDeny != want.WouldDeny || v.Reason != want.Reason {
			t.Errorf("%s: %v", n, v.Message())
		}
	}
}

func TestFloorsVouchForOwnTargets(t *testing.T) {
	t.Parallel()
	p := load(t, "[hosts]\n\"a.internal\" = \"127.0.0.1:5000\"\n\"b.internal\" = \"127.0.0.1:22\"\n")
	p.Floor = load(t, "[hosts]\n\"a.internal\" = \"127.0.0.1:5000\"\n\"b.internal\" = \"127.0.0.1:80\"\n")
	checkDecide(t, mustEngine(t, p), []decideCase{
		{"same target", flow("tcp 198.18.0.2:80", mapped("a.internal")), Allow, ReasonHosts, "hosts.a.internal"},
		{"another target", flow("tcp 198.18.0.3:80", mapped("b.internal")), Deny, ReasonHostAddress, ""},
	})
}

func TestNewRefusesRulesThatMeanNothing(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]policies.Rule{
		"no destination": {Ports: []policies.PortRange{{First: 1, Last: 2}}},
		"both":           {Hosts: patterns("a.example"), CIDRs: prefixes("8.8.8.8/32")},
		"tcp with paths": {Hosts: patterns("a.example"), Protocol: policies.TCP, Paths: []string{"/x"}},
	} {
		p := policies.Default()
		p.Egress.Allow = []policies.Rule{r}
		if _, err := New(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestMessagesNameDecisionAndReason(t *testing.T) {
	t.Parallel()
	e := mustEngine(t, load(t, example))
	for want, f := range map[string]Flow{
		"denied: 169.254.169.254: the address serves a cloud's instance metadata; only a rule for exactly this address opens it, as /32 or /128 (a cloud's metadata service)": flow("tcp 169.254.169.254:80"),
		"denied: api.github.com at 140.82.112.5: no rule for this host allows the request's method [rule github]":                                                             flow("tcp 140.82.112.5:443", pinned("api.github.com"), request(AppTLS, "api.github.com", "PUT", "/")),
		"git.example at 140.82.112.9: an allow rule covers it [rule ssh]":                                                                                                     flow("tcp 140.82.112.9:22", pinned("git.example")),
	} {
		if got := e.Decide(&f).Message(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestI5_LocalAddressesKeepTheirFinalClass: that the kernel delivers a packet locally makes an address the host's, unless it is one
// that nothing opens anyway, whose reason says more.
func TestI5_LocalAddressesKeepTheirFinalClass(t *testing.T) {
	t.Parallel()
	p, err := policies.Parse("test.toml", []byte("version = 1\n[egress]\ndefault = \"public\"\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string][2]Class{
		"93.184.215.14": {ClassHost, ClassPublic}, "10.0.0.1": {ClassHost, ClassPrivate}, "169.254.169.254": {ClassHost, ClassMetadata},
		"127.0.0.1": {ClassLoopback, ClassLoopback}, "0.0.0.0": {ClassUnspecified, ClassUnspecified},
	} {
		for i, local := range []bool{true, false} {
			v := mustEngine(t, p).Decide(&Flow{Proto: TCP, Dst: netip.AddrPortFrom(netip.MustParseAddr(addr), 80), Local: local})
			if v.Class != want[i] || v.Allowed() != (want[i] == ClassPublic) {
				t.Errorf("%s, local %v: %v, %s; want %v", addr, local, v.Class, v.Message(), want[i])
			}
		}
	}
}
