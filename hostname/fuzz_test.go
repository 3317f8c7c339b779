package hostname

import (
	"net/netip"
	"strings"
	"testing"
)

// FuzzName holds what the rest of the gateway relies on: a Name is in its one
// normal form, parses to itself, and no resolver takes it for an address.
func FuzzName(f *testing.F) {
	for _, s := range []string{"example.com", "Bücher.example.", "*.a.com", "*", "0x7f.1", "xn--bcher-kva.de", "ｅｘ。com", "a_b.c", "[::1]", "r3---sn.example", "xn--a", "1.2.3.4.a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, perr := ParsePattern(s)
		if perr == nil {
			if again, err := ParsePattern(p.String()); err != nil || again != p {
				t.Fatalf("pattern %q → %q → %q, %v", s, p, again, err)
			}
		}
		n, err := Parse(s)
		if err != nil {
			if !n.IsZero() {
				t.Fatalf("%q gave both %q and %v", s, n, err)
			}
			return
		}
		if perr != nil || !p.Match(n) {
			t.Fatalf("%q is a name, and the pattern of it gives %v", s, perr)
		}
		out := n.String()
		if again, err := Parse(out); err != nil || again != n {
			t.Fatalf("%q → %q → %q, %v", s, n, again, err)
		}
		if u, err := Parse(n.Unicode()); err != nil || u != n {
			t.Fatalf("%q → %q → Unicode %q → %q, %v", s, n, n.Unicode(), u, err)
		}
		if _, err := netip.ParseAddr(out); err == nil {
			t.Fatalf("%q became the address %q", s, out)
		}
		if len(out) > MaxLength || strings.ToLower(out) != out || strings.ContainsAny(out, "*:[]/ \x00") || strings.HasSuffix(out, ".") {
			t.Fatalf("%q became %q", s, out)
		}
		for _, label := range n.Labels() {
			if label == "" || len(label) > maxLabelLength {
				t.Fatalf("%q became %q with the label %q", s, out, label)
			}
		}
	})
}
