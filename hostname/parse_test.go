package hostname

import (
	"errors"
	"strings"
	"testing"
)

func TestParseNormalises(t *testing.T) {
	t.Parallel()
	label63 := strings.Repeat("a", 63)
	longest := strings.Join([]string{label63, label63, label63, strings.Repeat("b", 61)}, ".")
	for in, want := range map[string]string{
		"example.com":                  "example.com",
		"Example.COM.":                 "example.com",
		"localhost":                    "localhost",
		"bücher.example":               "xn--bcher-kva.example",
		"BÜCHER.example":               "xn--bcher-kva.example",
		"xn--bcher-kva.example":        "xn--bcher-kva.example",
		"XN--BCHER-KVA.EXAMPLE":        "xn--bcher-kva.example",
		"ｅｘａｍｐｌｅ。ｃｏｍ":                  "example.com",
		"straße.de":                    "xn--strae-oqa.de",
		"_sip._tcp.example.com":        "_sip._tcp.example.com",
		"r3---sn-4g5e6nsz.example.com": "r3---sn-4g5e6nsz.example.com",
		"1.2.3.4.example.com":          "1.2.3.4.example.com",
		"0x7f.example":                 "0x7f.example",
		"123.0xzz":                     "123.0xzz",
		label63 + ".com":               label63 + ".com",
		longest:                        longest,
		longest + ".":                  longest,
	} {
		got, err := Parse(in)
		if err != nil || got.String() != want {
			t.Errorf("Parse(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", ".", "..", "a..b", ".a", "a..", "-a.com", "a-.com", "a.-b", "a b", "a\tb", "a\x00b", "a/b", "a@b",
		"a:443", "*", "*.example.com", "a.*.b", "ex*mple.com", "%61.com", "a\u202eb.com", "a\u200d.com",
		"xn--.com", "xn--a.com", "xn--99999999.com", "xn--example-.com", "xn--bcher-kva8445foa.com\x80",
		strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "com", strings.Repeat("ü", 2000),
		"a\u05d0.com", "\u05d0a.com", "\u05d0-1a.com", "1\u05d0.com", "\u0661\u05d01.com", "xn--a-0hc.com",
		"a。。b", "[::1", "é\xff.com",
	} {
		if got, err := Parse(in); err == nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("Parse(%q) = %q, %v; want an ErrInvalid", in, got, err)
		}
	}
}

// Every spelling that inet_aton, browsers or resolvers take for an address must
// not become a name, or it would pass the checks on names and be dialled as an
// address.
func TestI5_AddressesAreNotNames(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"127.0.0.1", "127.0.0.1.", "127.1", "2130706433", "0x7f000001", "0X7F000001", "0177.0.0.1", "0x7f.1", "0x7f.0x1",
		"0", "0.0.0.0", "1.2.3.4.5", "256.256.256.256", "a.127", "example.0x7f", "0x", "a.0x", "08.example.09",
		"::1", "[::1]", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "fe80::1%eth0", "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1",
	} {
		if got, err := Parse(in); !errors.Is(err, ErrAddress) {
			t.Errorf("Parse(%q) = %q, %v; want ErrAddress", in, got, err)
		}
	}
}

func TestNameRelations(t *testing.T) {
	t.Parallel()
	com, example, deep := MustParse("com"), MustParse("example.com"), MustParse("a.b.example.com")
	for _, c := range []struct {
		name, parent Name
		want         bool
	}{
		{example, com, true}, {deep, example, true}, {deep, com, true},
		{example, example, false}, {com, example, false},
		{MustParse("notexample.com"), example, false}, {MustParse("example.com.evil.org"), example, false},
		{example, Name{}, false}, {Name{}, example, false}, {Name{}, Name{}, false},
	} {
		if got := c.name.IsSubdomainOf(c.parent); got != c.want {
			t.Errorf("%q.IsSubdomainOf(%q) = %v, want %v", c.name, c.parent, got, c.want)
		}
	}
	if got := deep.Parent(); got != MustParse("b.example.com") {
		t.Errorf("Parent = %q", got)
	}
	if got := com.Parent(); !got.IsZero() {
		t.Errorf("Parent of a single label = %q, want none", got)
	}
	if got := strings.Join(deep.Labels(), " "); got != "a b example com" {
		t.Errorf("Labels = %q", got)
	}
	if got := (Name{}).Labels(); got != nil {
		t.Errorf("Labels of no name = %q", got)
	}
}

func TestNameTextRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []Name{{}, MustParse("example.com"), MustParse("bücher.example")} {
		text, err := want.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		got := MustParse("other.example")
		if err := got.UnmarshalText(text); err != nil || got != want {
			t.Errorf("%q came back as %q, %v", want, got, err)
		}
	}
	var n Name
	if err := n.UnmarshalText([]byte("127.0.0.1")); err == nil {
		t.Error("an address was unmarshalled into a name")
	}
}

func TestMustParsePanics(t *testing.T) {
	t.Parallel()
	for _, f := range []func(){func() { MustParse("") }, func() { MustParsePattern("a*") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		}()
	}
}

func TestParsingPlainNamesAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { MustParse("api.github.com") }); n != 0 {
		t.Errorf("%v allocations, want 0: every DNS question and SNI goes through here", n)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, s := range []string{"api.github.com", "API.GitHub.com.", "bücher.example"} {
		b.Run(s, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				MustParse(s)
			}
		})
	}
}
