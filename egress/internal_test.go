package egress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/hostname"
)

// TestI6_ReverseZonesInsideAreLocal compares with the classifier: a zone of
// which no address is public is local, and one that holds public ones isn't.
func TestI6_ReverseZonesInsideAreLocal(t *testing.T) {
	t.Parallel()
	local := []string{
		"1.168.192.in-addr.arpa", "168.192.in-addr.arpa", "10.in-addr.arpa", "16.172.in-addr.arpa", "31.172.in-addr.arpa",
		"0-63.1.168.192.in-addr.arpa", "5.0-63.1.168.192.in-addr.arpa", "16-31.172.in-addr.arpa", "1-31.172.in-addr.arpa",
		"010.in-addr.arpa", "08.8.in-addr.arpa", "8.08.in-addr.arpa", "008.in-addr.arpa", "001.168.192.in-addr.arpa", "1.01.168.192.in-addr.arpa", "1.168.0192.in-addr.arpa", "0x0a.in-addr.arpa",
		"x.1.2.3.10.in-addr.arpa", "256.168.192.in-addr.arpa", "b._dns-sd._udp.0.1.168.192.in-addr.arpa", "lb._dns-sd._udp.in-addr.arpa",
		"254.169.in-addr.arpa", "64.100.in-addr.arpa", "127.in-addr.arpa", "0.in-addr.arpa", "224.in-addr.arpa", "2.0.192.in-addr.arpa",
		"x.88.192.in-addr.arpa", "x.51.198.in-addr.arpa", "0-255.0.203.in-addr.arpa", // the ends are public, and a /24 between them isn't
		"d.f.ip6.arpa", "c.f.ip6.arpa", "8.e.f.ip6.arpa", "b.e.f.ip6.arpa", "0.8.e.f.ip6.arpa", "f.f.ip6.arpa", "f.ip6.arpa",
		"8-b.e.f.ip6.arpa", "fd00.ip6.arpa", "0d.f.ip6.arpa", "x.d.f.ip6.arpa", "8.b.d.0.1.0.0.2.ip6.arpa",
		"resolver.arpa", "_dns.resolver.arpa",
	}
	open := []string{
		"8.8.in-addr.arpa", "8.in-addr.arpa", "192.in-addr.arpa", "172.in-addr.arpa", "15.172.in-addr.arpa", "32.172.in-addr.arpa", "in-addr.arpa",
		"5.0-63.43.8.8.in-addr.arpa", "0.192.in-addr.arpa", "0.0.6.2.ip6.arpa", "2.ip6.arpa", "ip6.arpa", "x.8.8.6.4.0.6.8.4.1.0.0.2.ip6.arpa",
		"example.arpa", "xresolver.arpa", "10.in-addr.arpa.example.com",
	}
	for text, want := range both(local, open) {
		if reason, special := SpecialName(hostname.MustParse(text)); special != want || special && reason != ReasonLocalName {
			t.Errorf("%s: special %v (%v), want %v", text, special, reason, want)
		}
	}
	r := rand.New(rand.NewPCG(25, 1))
	for range 5_000 {
		a := netip.AddrFrom4([4]byte{[]byte{10, 172, 192, 100, 169, 198, byte(r.Uint32())}[r.IntN(7)], byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())})
		if r.IntN(2) == 0 {
			b := [16]byte{}
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			b[0] = []byte{0xfd, 0xfe, 0x20, 0x26, b[0]}[r.IntN(5)]
			a = netip.AddrFrom16(b)
		}
		name, err := dns.ReverseAddr(a.String())
		if err != nil {
			t.Fatal(err)
		}
		prefix := strings.SplitN(name, ".", 2)[1]
		for _, text := range []string{name, "x." + name, "0-9." + prefix, "0" + name} {
			if _, special := SpecialName(hostname.MustParse(text)); !special && !Classify(a).Public() {
				t.Fatalf("%s goes upstream; %v is %v", text, a, Classify(a))
			}
		}
		if _, special := SpecialName(hostname.MustParse(name)); special && Classify(a).Public() {
			t.Fatalf("%s is held back; %v is public", name, a)
		}
	}
}

func both(yes, no []string) map[string]bool {
	m := make(map[string]bool, len(yes)+len(no))
	for _, s := range yes {
		m[s] = true
	}
	for _, s := range no {
		m[s] = false
	}
	return m
}

// TestI6_InternalNamesNeedOwnRules looks up internal names under the policies that allow the most, and under rules that
// name them.
func TestI6_InternalNamesNeedOwnRules(t *testing.T) {
	t.Parallel()
	const star = "[[egress.allow]]\nhosts = [\"*\"]\nprotocol = \"https\"\n"
	for _, open := range []string{"[egress]\ndefault = \"public\"\n", star, "[egress]\nmode = \"report\"\n", "[egress]\ndefault = \"public\"\n" + star} {
		bare := mustEngine(t, load(t, open))
		for _, text := range []string{"db.internal", "a.b.internal", "wiki.corp", "nas.lan", "x.home", "x.intranet", "x.private", "mx.mail", "ci.test", "home.arpa", "tv.home.arpa", "cluster.local", "api.shop.svc.cluster.local"} {
			n := hostname.MustParse(text)
			why := ReasonLocalName
			if open == star { // no default would let it through
				why = ReasonNoRule
			}
			if v := bare.DecideName(n); v.Action != Deny || v.Reason != why {
				t.Errorf("%q: %s goes upstream, or is denied for another reason: %v", open, text, v.Message())
			}
			for _, pattern := range []string{text, "*." + text[strings.LastIndexByte(text, '.')+1:]} {
				named := mustEngine(t, load(t, fmt.Sprintf("%s[[egress.allow]]\nname = \"own\"\nhosts = [\"*\", %q]\nprotocol = \"https\"\n", open, pattern)))
				if v := named.DecideName(n); v.Action != Allow || v.Rule != "own" {
					t.Errorf("%q: %s with a rule for %s: %v", open, text, pattern, v.Message())
				}
			}
		}
		for _, text := range []string{"internal.example.com", "corp.example.com", "xinternal.com", "homearpa.com"} {
			if v := bare.DecideName(hostname.MustParse(text)); v.Action != Allow {
				t.Errorf("%q: %s: %v", open, text, v.Message())
			}
		}
	}
}

// TestI5_LoopbackIsTheHosts in each spelling, whatever addresses the host has.
func TestI5_LoopbackIsTheHosts(t *testing.T) {
	t.Parallel()
	c := NewClassifier()
	for text, want := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "128.0.0.1": false, "::2": false} {
		if got := c.OwnedByHost(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
