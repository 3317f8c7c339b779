package egress

import (
	"encoding/csv"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// stricter are blocks that the registries call globally reachable and that stay
// shut all the same, and why.
var stricterBlocks = map[string]string{
	"192.0.0.9/32":  "the nearest router's port control: it opens ports on the host's side",
	"192.0.0.10/32": "the nearest relay, on the host's side",
	"2001:1::1/128": "the nearest router's port control",
	"2001:1::2/128": "the nearest relay",
	"2001:1::3/128": "service registration on the host's network",
	"2001:20::/28":  "identifiers, not locators: nothing routes them",
	"2001:30::/28":  "identifiers, not locators",
}

// byInner are blocks whose addresses are what the IPv4 address in them is.
var byInner = map[string]bool{"::ffff:0:0/96": true, "64:ff9b::/96": true}

func registry(t *testing.T, file string) [][]string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

// sample returns the first, second, middle and last address of p.
func sample(p netip.Prefix) []netip.Addr {
	first := p.Masked().Addr()
	last, middle := first.AsSlice(), first.AsSlice()
	for i := range last {
		for bit := range 8 {
			if at := i*8 + bit; at >= p.Bits() {
				last[i] |= 0x80 >> bit
				if at == p.Bits() {
					middle[i] |= 0x80 >> bit
				}
			}
		}
	}
	l, _ := netip.AddrFromSlice(last)
	m, _ := netip.AddrFromSlice(middle)
	out := []netip.Addr{first, m, l}
	if p.Contains(first.Next()) {
		out = append(out, first.Next())
	}
	return out
}

func TestI5_ClassifierKnowsTheSpecialPurposeRegistries(t *testing.T) {
	for _, file := range []string{"iana-ipv4-special-registry.csv", "iana-ipv6-special-registry.csv"} {
		rows := registry(t, file)
		reachable := map[netip.Prefix]bool{}
		for _, row := range rows {
			reachable[netip.MustParsePrefix(row[0])] = row[3] == "True" && stricterBlocks[row[0]] == ""
		}
		for _, row := range rows {
			p := netip.MustParsePrefix(row[0])
			if byInner[row[0]] {
				continue
			}
			for _, a := range sample(p) {
				want := p // the narrowest block that holds a decides
				for q := range reachable {
					if q.Contains(a) && q.Bits() > want.Bits() {
						want = q
					}
				}
				if got := Classify(a) == ClassPublic; got != reachable[want] {
					t.Errorf("%v in %v (%s): class %v, want public=%v", a, want, row[1], Classify(a), reachable[want])
				}
			}
		}
	}
}

func TestClassOfEveryKind(t *testing.T) {
	tests := map[Class][]string{
		ClassUnspecified:   {"0.0.0.0", "0.0.0.1", "0.255.255.255", "::", "::ffff:0.0.0.0", "64:ff9b::"},
		ClassLoopback:      {"127.0.0.1", "127.1.2.3", "127.255.255.255", "::1", "::ffff:127.0.0.1"},
		ClassPrivate:       {"10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255", "fc00::", "fd00::1", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::1", "feff:ffff::1"},
		ClassShared:        {"100.64.0.0", "100.127.255.255"},
		ClassLinkLocal:     {"169.254.0.0", "169.254.255.255", "fe80::1", "fe80::1%eth0", "febf::1"},
		ClassMulticast:     {"224.0.0.1", "239.255.255.255", "ff02::1", "ff0e::1"},
		ClassBroadcast:     {"255.255.255.255"},
		ClassDocumentation: {"192.0.2.1", "198.51.100.1", "203.0.113.255", "2001:db8::1", "3fff::1", "3fff:fff::1"},
		ClassBenchmark:     {"198.18.0.0", "198.19.255.255", "2001:2::1"},
		ClassProtocol:      {"192.0.0.1", "192.0.0.9", "2001:1::1", "2001:20::1", "2001:1ff:ffff::1"},
		ClassTranslated:    {"192.88.99.1", "2002:808:808::1", "2001:0:808:808::f7f7:f7f7", "::8.8.8.8", "::ffff:0:8.8.8.8", "64:ff9b:1::808:808"},
		ClassReserved:      {"240.0.0.0", "255.255.255.254", "200::1", "300::1", "400::1", "1::1", "100::1", "100:0:0:1::1", "4000::1", "5f00::1", "8000::1", "e000::1", "fe00::1"},
		ClassPublic:        {"1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0", "192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255", "8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2000::1", "2001:200::1", "2001:db7::1", "2001:db9::1", "2003::1", "2a00:1450:4001::1", "3fff:1000::1", "3ffe::1"},
		ClassInvalid:       {""},
	}
	for want, addrs := range tests {
		for _, s := range addrs {
			a, _ := netip.ParseAddr(s)
			if got := Classify(a); got != want {
				t.Errorf("%s: %v, want %v", s, got, want)
			}
		}
	}
}

// embeddings are the forms of an IPv4 address inside an IPv6 one.
var embeddings = map[string]func(v4 [4]byte) [16]byte{
	"v4-mapped":        func(v [4]byte) [16]byte { return at(v, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff) },
	"v4-compatible":    func(v [4]byte) [16]byte { return at(v, 12) },
	"SIIT":             func(v [4]byte) [16]byte { return at(v, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff) },
	"NAT64":            func(v [4]byte) [16]byte { return at(v, 12, 0, 0x64, 0xff, 0x9b) },
	"NAT64 local /96":  func(v [4]byte) [16]byte { return at(v, 12, 0, 0x64, 0xff, 0x9b, 0, 1) },
	"NAT64 local /96+": func(v [4]byte) [16]byte { return at(v, 12, 0, 0x64, 0xff, 0x9b, 0, 1, 0, 0, 0, 0, 0xca, 0xfe) },
	"NAT64 local /64":  func(v [4]byte) [16]byte { return at(v, 9, 0, 0x64, 0xff, 0x9b, 0, 1) },
	"NAT64 local /56": func(v [4]byte) [16]byte {
		b := [16]byte{0, 0x64, 0xff, 0x9b, 0, 1}
		b[7], b[9], b[10], b[11] = v[0], v[1], v[2], v[3]
		return b
	},
	"NAT64 local /48": func(v [4]byte) [16]byte {
		b := [16]byte{0, 0x64, 0xff, 0x9b, 0, 1}
		b[6], b[7], b[9], b[10] = v[0], v[1], v[2], v[3]
		return b
	},
	"6to4": func(v [4]byte) [16]byte { return at(v, 2, 0x20, 0x02) },
	"Teredo server": func(v [4]byte) [16]byte {
		return at(v, 4, 0x20, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf7, 0xf7, 0xf7, 0xf7)
	},
	"Teredo client": func(v [4]byte) [16]byte {
		return at([4]byte{^v[0], ^v[1], ^v[2], ^v[3]}, 12, 0x20, 0x01, 0, 0, 8, 8, 8, 8)
	},
	"ISATAP":          func(v [4]byte) [16]byte { return at(v, 12, 0x2a, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0x5e, 0xfe) },
	"ISATAP unique":   func(v [4]byte) [16]byte { return at(v, 12, 0x2a, 0, 0, 1, 0, 0, 0, 1, 2, 0, 0x5e, 0xfe) },
	"ISATAP group":    func(v [4]byte) [16]byte { return at(v, 12, 0x2a, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0x5e, 0xfe) },
	"ISATAP both":     func(v [4]byte) [16]byte { return at(v, 12, 0x2a, 0, 0, 1, 0, 0, 0, 1, 3, 0, 0x5e, 0xfe) },
	"ISATAP on fe80:": func(v [4]byte) [16]byte { return at(v, 12, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0x5e, 0xfe) },
}

// at puts v at byte i of an address that starts with prefix.
func at(v [4]byte, i int, prefix ...byte) [16]byte {
	var b [16]byte
	copy(b[:], prefix)
	copy(b[i:], v[:])
	return b
}

func TestI5_EmbeddedAddressesDecideTheClass(t *testing.T) {
	host := netip.MustParseAddr("93.184.215.77") // a public address that is the host's
	c := NewClassifier(netip.MustParseAddr("192.168.127.1"))
	c.SetHost(host)
	inner := map[string]Class{
		"127.0.0.1": ClassLoopback, "10.0.0.1": ClassPrivate, "192.168.1.1": ClassPrivate, "172.16.0.1": ClassPrivate,
		"169.254.169.254": ClassMetadata, "100.100.100.200": ClassMetadata, "168.63.129.16": ClassMetadata, "192.0.0.192": ClassMetadata,
		"169.254.1.1": ClassLinkLocal, "100.64.0.1": ClassShared, "224.0.0.1": ClassMulticast, "255.255.255.255": ClassBroadcast,
		"93.184.215.77": ClassHost, "192.168.127.1": ClassGateway,
	}
	for form, embed := range embeddings {
		for v4, want := range inner {
			a := netip.AddrFrom16(embed(netip.MustParseAddr(v4).As4()))
			got := c.class(a)
			if form == "ISATAP on fe80:" && severity(want) < severity(ClassMetadata) {
				want = ClassLinkLocal // as bad already
			}
			if got != want {
				t.Errorf("%s of %s (%v): %v, want %v", form, v4, a, got, want)
			}
		}
	}
}

func TestI5_EveryMetadataAddressIsKnown(t *testing.T) {
	for _, s := range []string{
		"169.254.169.254", "169.254.169.253", "169.254.169.123", "169.254.170.2", "169.254.170.23", "169.254.0.23", "169.254.42.42",
		"100.100.100.200", "100.96.0.96", "168.63.129.16", "192.0.0.192", "192.80.8.124",
		"fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::123", "fd00:ec2::23", "fd20:ce::254",
		"fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe", "fe80::a9fe:a9fe%eth0",
	} {
		if got := Classify(netip.MustParseAddr(s)); got != ClassMetadata {
			t.Errorf("%s: %v, want metadata", s, got)
		}
	}
}

func TestI5_HostAndGatewayBeatTheTables(t *testing.T) {
	c := NewClassifier(netip.MustParseAddr("192.168.127.1"), netip.MustParseAddr("fd5a::1"))
	c.SetHost(netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::ffff:93.184.215.14"), netip.MustParseAddr("fe80::1%eth0"))
	for s, want := range map[string]Class{
		"10.1.2.3": ClassHost, "::ffff:10.1.2.3": ClassHost, "93.184.215.14": ClassHost, "fe80::1": ClassHost, "fe80::1%eth7": ClassHost,
		"192.168.127.1": ClassGateway, "fd5a::1": ClassGateway, "10.1.2.4": ClassPrivate, "8.8.8.8": ClassPublic,
	} {
		if got := c.class(netip.MustParseAddr(s)); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	c.SetHost()
	if got := c.class(netip.MustParseAddr("93.184.215.14")); got != ClassPublic {
		t.Errorf("a removed host address is still %v", got)
	}
}

func TestClassifyDoesNotAllocate(t *testing.T) {
	c := NewClassifier(netip.MustParseAddr("192.168.127.1"))
	addrs := []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("64:ff9b:1::7f00:1"), netip.MustParseAddr("2a00:1450::1")}
	if n := testing.AllocsPerRun(100, func() {
		for _, a := range addrs {
			c.class(a)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func FuzzClassify(f *testing.F) {
	for _, embed := range embeddings {
		b := embed([4]byte{169, 254, 169, 254})
		f.Add(b[:])
	}
	f.Add([]byte{8, 8, 8, 8})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		c := Classify(a)
		if ok == (c == ClassInvalid) {
			t.Errorf("%v: %v", a, c)
		}
		if c == ClassPublic && (a.Unmap().IsPrivate() || a.Unmap().IsLoopback() || a.IsLinkLocalUnicast() || a.Unmap().IsMulticast() || a.IsUnspecified()) {
			t.Errorf("%v is public", a)
		}
	})
}
