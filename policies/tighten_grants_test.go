package policies

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const openAll = "[[egress.allow]]\nname = \"web\"\nhosts = [\"a.example\", \"b.example\"]\n"

const anyPort = "ports = [443, 8443]\nprotocol = \"https\"\n"

// oneSecret is a table with the given lines, over openAll.
func oneSecret(lines ...string) string {
	return openAll + "[secrets.T]\n" + strings.Join(lines, "\n") + "\n"
}

// inRange is a rule for a name that leads inside.
func inRange(host, within string) string {
	return "[[egress.allow]]\nname = \"inside\"\nhosts = [\"" + host + "\"]\nwithin = [\"" + within + "\"]\n"
}

func TestI15_FloorNamesWhatAPolicyTakes(t *testing.T) {
	t.Parallel()
	const (
		env  = "from = \"env:T\""
		cmd  = "from = [\"command:/bin/get\", \"x\"]"
		host = "hosts = [\"a.example\"]"
		in   = "in = [\"header:Authorization\"]"
		aws  = "kind = \"aws-sigv4\""
		mint = "mint = {path = \"/t\", fields = [\"token\"]}"
	)
	signed := func(services, regions string) string {
		return oneSecret(env, host, aws, "services = ["+services+"]", "regions = ["+regions+"]")
	}
	for _, c := range []struct{ name, floor, policy, want string }{
		{"the same", oneSecret(env, host, in), oneSecret(env, host, in), ""},
		{"under another name", strings.Replace(oneSecret(env, host, in), "secrets.T", "secrets.OTHER", 1), oneSecret(env, host, in), ""},
		{"fewer hosts and places", oneSecret(env, "hosts = [\"b.example\", \"a.example\"]", "in = [\"basic\", \"header:Authorization\"]"), oneSecret(env, host, in), ""},
		{"stricter violation", oneSecret(env, host, in), oneSecret(env, host, in, "on_violation = \"terminate\""), ""},
		{"no secret in the floor", openAll, oneSecret(env, host, in), "names no secret from env:T for a.example"},
		{"another variable", oneSecret(env, host, in), oneSecret("from = \"env:AWS_SECRET_ACCESS_KEY\"", host, in), "names no secret from env:AWS"},
		{"another file", oneSecret("from = \"file:/a\"", host, in), oneSecret("from = \"file:/b\"", host, in), "names no secret"},
		{"a command for a variable", oneSecret(env, host, in), oneSecret("from = \"command:T\"", host, in), "names no secret"},
		{"another argument", oneSecret(cmd, host, in), oneSecret(strings.Replace(cmd, "x", "y", 1), host, in), "names no secret"},
		{"one host more", oneSecret(env, host, in), oneSecret(env, "hosts = [\"a.example\", \"b.example\"]", in), "for b.example"},
		{"another port", strings.Replace(oneSecret(env, host, in), openAll, openAll+anyPort, 1), strings.Replace(oneSecret(env, "hosts = [\"a.example:8443\"]", in), openAll, openAll+anyPort, 1), "for a.example:8443"},
		{"one place more", oneSecret(env, host, in), oneSecret(env, host, "in = [\"header:Authorization\", \"body\"]"), "another in"},
		{"violation loosened", oneSecret(env, host, in, "on_violation = \"terminate\""), oneSecret(env, host, in), "another on_violation"},
		{"mint dropped", oneSecret(env, host, in, mint), oneSecret(env, host, in), "another mint"},
		{"mint of another path", oneSecret(env, host, in, mint), oneSecret(env, host, in, strings.Replace(mint, "/t", "/u", 1)), "another mint"},
		{"mint of fewer fields", oneSecret(env, host, in, strings.Replace(mint, "\"token\"", "\"token\", \"refresh\"", 1)), oneSecret(env, host, in, mint), "another mint"},
		{"the same mint", oneSecret(env, host, in, mint), oneSecret(env, host, in, mint), ""},
		{"upgrades added", oneSecret(env, host, in), oneSecret(env, host, in, "upgrades = [\"spdy/3.1\"]"), "another upgrades"},
		{"fewer upgrades", oneSecret(env, host, in, "upgrades = [\"spdy/3.1\", \"tcp\"]"), oneSecret(env, host, in, "upgrades = [\"spdy/3.1\"]"), ""},
		{"ttl dropped", oneSecret(cmd, host, in, "ttl = \"5m\""), oneSecret(cmd, host, in), "another ttl"},
		{"ttl shortened", oneSecret(cmd, host, in, "ttl = \"5m\""), oneSecret(cmd, host, in, "ttl = \"1s\""), "another ttl"},
		{"refresh added", oneSecret(cmd, host, in), oneSecret(cmd, host, in, "refresh_on_401 = true"), "another refresh_on_401"},
		{"refresh dropped", oneSecret(cmd, host, in, "refresh_on_401 = true"), oneSecret(cmd, host, in), "another refresh_on_401"},
		{"signature dropped", signed("\"s3\"", "\"eu\""), oneSecret(env, host, in), "another in, kind"},
		{"fewer services", signed("\"s3\", \"sqs\"", "\"eu\""), signed("\"s3\"", "\"eu\""), ""},
		{"one service more", signed("\"s3\"", "\"eu\""), signed("\"s3\", \"sqs\"", "\"eu\""), "another services"},
		{"another region", signed("\"s3\"", "\"eu\""), signed("\"s3\"", "\"us\""), "another regions"},
		{"a range of a name", inRange("*.example", "10.0.0.0/8"), inRange("wiki.corp.example", "10.8.0.0/16"), ""},
		{"no range in the floor", openAll, inRange("a.example", "10.8.0.0/16"), "a.example may have addresses in 10.8.0.0/16"},
		{"a wider range", inRange("a.example", "10.8.0.0/16"), inRange("a.example", "10.0.0.0/8"), "a.example may have addresses in 10.0.0.0/8"},
		{"a range of another name", inRange("b.example", "10.8.0.0/16"), inRange("a.example", "10.8.0.0/16"), "a.example may have"},
		{"a range of addresses", "[[egress.allow]]\ncidrs = [\"10.0.0.0/8\"]\nports = [443]\nprivate = true\n", inRange("a.example", "10.8.0.0/16"), "a.example may have"},
		{"metadata within", inRange("a.example", "169.254.0.0/16"), inRange("a.example", "169.254.169.254/32"), "a.example may have"},
		{"public ranges", openAll, inRange("a.example", "0.0.0.0/0"), ""},
		{"a range under public ones", inRange("a.example", "0.0.0.0/0"), inRange("a.example", "10.8.0.0/16"), "a.example may have"},
		{"local image", "", "[sandbox]\nimage = \"dir:/etc\"\n", "doesn't name this image"},
		{"another layout", "[sandbox]\nimage = \"oci:/a\"\n", "[sandbox]\nimage = \"oci:/b\"\n", "doesn't name this image"},
		{"the floor's archive", "[sandbox]\nimage = \"docker-archive:/a\"\n", "[sandbox]\nimage = \"docker-archive:/a\"\n", ""},
		{"public and built-in images", "", "[sandbox]\nimage = \"example.com/x:1\"\n", ""},
		{"roots", "", "[[tls.extra_ca]]\nfile = \"/ca.pem\"\nhosts = [\"a.example\"]\n", "doesn't name the roots"},
		{"roots for one host more", "[[tls.extra_ca]]\nfile = \"/ca.pem\"\nhosts = [\"a.example\"]\n", "[[tls.extra_ca]]\nfile = \"/ca.pem\"\nhosts = [\"a.example\", \"b.example\"]\n", "for b.example"},
		{"roots of another file", "[[tls.extra_ca]]\nfile = \"/ca.pem\"\nhosts = [\"a.example\"]\n", "[[tls.extra_ca]]\nfile = \"/own.pem\"\nhosts = [\"a.example\"]\n", "doesn't name the roots of \"/own.pem\""},
		{"the floor's roots", "[[tls.extra_ca]]\nfile = \"/ca.pem\"\nhosts = [\"*.example\"]\n", "[[tls.extra_ca]]\nfile = \"/ca.pem\"\nhosts = [\"a.example\"]\n", ""},
	} {
		tight, err := Tighten(parse(t, c.floor), parse(t, c.policy))
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != "" && (err == nil || tight != nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Under "public" a rule on names has nothing inspected, so that it doesn't exclude a bypass.
func TestI7_PublicFloorsAllowBypass(t *testing.T) {
	t.Parallel()
	const rules = "[[egress.allow]]\nname = \"web\"\nhosts = [\"a.example\"]\n[[egress.deny]]\nname = \"no\"\nhosts = [\"evil.example\"]\n"
	own := parse(t, "[tls]\nbypass = [\"a.example\"]\n[[egress.allow]]\nhosts = [\"a.example\"]\n")
	if _, err := Tighten(parse(t, "[egress]\ndefault = \"public\"\n"+rules), own); err != nil {
		t.Errorf("under public: %v", err)
	}
	if _, err := Tighten(parse(t, rules), own); err == nil || !strings.Contains(err.Error(), "all https is inspected") {
		t.Errorf("under deny: %v, want a refusal", err)
	}
}

// The second floor is put below the first.
func TestI15_EveryFloorMustNameTheSecret(t *testing.T) {
	t.Parallel()
	secret := oneSecret("from = \"env:T\"", "hosts = [\"a.example\"]", "in = [\"basic\"]")
	tight, err := Tighten(parse(t, secret), parse(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Tighten(parse(t, openAll), tight); err == nil {
		t.Error("a second floor that doesn't name the secret is passed over")
	}
}

func TestI15_IncludesOutsideAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(path, text string) string {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("version = 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shared := put("shared/rules.toml", "")
	put("mine/parts/rules.toml", "")
	if err := os.Symlink(shared, filepath.Join(dir, "mine/link.toml")); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(shared)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		include string
		outside bool
	}{
		{"parts/rules.toml", false},
		{"pypi", false},
		{"../shared/rules.toml", true},
		{shared, true},
		{"link.toml", true},
		{"parts/../../shared/rules.toml", true},
	} {
		p, err := Load(put("mine/policy.toml", "include = [\""+c.include+"\"]\n"))
		if err != nil {
			t.Fatal(err)
		}
		if (len(p.Outside) == 1) != c.outside || c.outside && p.Outside[0] != real {
			t.Errorf("%s: outside are %q", c.include, p.Outside)
		}
		if _, err := Tighten(Default(), p); (err != nil) != c.outside {
			t.Errorf("%s: under a floor: %v", c.include, err)
		}
		floor := Default()
		floor.Outside = []string{real}
		if _, err := Tighten(floor, p); err != nil {
			t.Errorf("%s: named by the floor: %v", c.include, err)
		}
	}
}

// One of the two reports, or both: report mode holds only if both ask for it.
func TestReportModeNeedsBoth(t *testing.T) {
	t.Parallel()
	modes := []Mode{Enforce, Report}
	for _, a := range modes {
		for _, b := range modes {
			for _, c := range modes {
				policy, floor, second := Default(), Default(), Default()
				policy.Egress.Mode, floor.Egress.Mode, second.Egress.Mode = a, b, c
				tight, err := Tighten(floor, policy)
				if err == nil {
					tight, err = Tighten(second, tight)
				}
				if err != nil {
					t.Fatal(err)
				}
				want := Enforce
				if a == Report && b == Report && c == Report {
					want = Report
				}
				if tight.Egress.Mode != want || tight.Floor.Egress.Mode != want || tight.Floor.Floor.Egress.Mode != want {
					t.Errorf("%v over %v over %v: %v over %v over %v", a, b, c, tight.Egress.Mode, tight.Floor.Egress.Mode, tight.Floor.Floor.Egress.Mode)
				}
				if floor.Egress.Mode != b || second.Egress.Mode != c {
					t.Error("a floor was changed")
				}
			}
		}
	}
}

// TestI5_RangesOpenWhatLiesWithin: and neither what lies beside or around them, nor metadata.
func TestI5_RangesOpenWhatLiesWithin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outer, inner string
		want         bool
	}{
		{"10.0.0.0/8", "10.0.0.0/8", true}, {"10.0.0.0/8", "10.1.0.0/16", true}, {"10.0.0.0/8", "10.255.255.255/32", true}, {"fd00::/8", "fd00:1::/32", true},
		{"10.1.0.0/16", "10.0.0.0/8", false}, {"10.0.0.0/16", "10.0.0.0/8", false}, {"10.0.0.0/16", "10.1.0.0/16", false}, {"10.0.0.0/8", "192.168.0.0/16", false}, {"10.0.0.0/8", "fd00::/8", false},
		{"0.0.0.0/0", "10.0.0.0/8", false}, {"::/0", "fd00::/8", false}, {"0.0.0.0/0", "0.0.0.0/0", true},
		{"169.254.0.0/16", "169.254.169.254/32", false}, {"169.254.169.254/32", "169.254.169.254/32", true}, {"169.254.0.0/16", "169.254.1.1/32", true},
	} {
		if got := InRange(netip.MustParsePrefix(c.outer), netip.MustParsePrefix(c.inner)); got != c.want {
			t.Errorf("%s opens %s: %v", c.outer, c.inner, got)
		}
	}
}

func TestI15_LocalImagesNameFiles(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]bool{
		"oci:/x": true, "docker-archive:x.tar": true, "dir:.": true, "dir:": true,
		"": false, "builtin": false, "oci": false, "dir": false, "docker-archive": false, "alpine:3.20": false, "registry.example/oci:1": false, "OCI:/x": false, "x:oci": false,
	} {
		if LocalImage(ref) != want {
			t.Errorf("%q: %v", ref, !want)
		}
	}
}

// TestI11_PairsAreNotWrittenOut: who writes a pod's policy has 64 KiB, and what each of its hosts, ranges and rules means together with each
// other one takes neither minutes nor gigabytes of whoever reads it. The twin is what a few of them take.
func TestI11_PairsAreNotWrittenOut(t *testing.T) {
	floor := parse(t, "[[egress.allow]]\nhosts = [\"*.a.example\"]\nwithin = [\"10.1.0.0/16\"]\n")
	for name, text := range map[string]func(n int) string{
		"hosts and ranges": func(n int) string {
			var hosts, within []string
			for i := range n {
				hosts, within = append(hosts, fmt.Sprintf("\"%d.example\"", i)), append(within, fmt.Sprintf("\"10.2.%d.%d/32\"", i/256, i%256))
			}
			return "[[egress.allow]]\nhosts = [" + strings.Join(hosts, ",") + "]\nwithin = [" + strings.Join(within, ",") + "]\n"
		},
		"private rules and names": func(n int) string {
			var b strings.Builder
			for i := range n / 4 {
				fmt.Fprintf(&b, "[[egress.allow]]\nprivate = true\nports = [443]\ncidrs = [\"10.%d.0.0/16\"]\n[[egress.allow]]\nhosts = [\"a%d.example\"]\n", i%250, i)
			}
			return b.String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			faultsOf := func(n int) string {
				p, err := Parse("policy", []byte("version = 1\n"+text(n)), nil)
				if err == nil {
					_, err = Tighten(floor, p)
				}
				if err == nil {
					t.Fatal("no fault")
				}
				return err.Error()
			}
			cost := func(n int) (bytes uint64) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				faultsOf(n)
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc
			}
			if got := faultsOf(8); strings.Contains(got, "more faults") {
				t.Errorf("of a few, not all are said:\n%s", got)
			}
			const most = 100 << 20
			if few, many := cost(8), cost(1600); many > most {
				t.Errorf("%d bytes were allocated for many, and %d for a few", many, few)
			}
			if got := faultsOf(1600); len(got) > 1<<20 || !strings.Contains(got, " more faults; mend these first") {
				t.Errorf("the error has %d bytes", len(got))
			}
		})
	}
}
