package egress

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/msb-project/msb/policies"
)

// A file's rule over addresses is taken without private = true only where the classifier lets it match,
// and with it only where some rule may.
func TestI5_PoliciesRefuseReservedRanges(t *testing.T) {
	t.Parallel()
	var addrs []netip.Addr
	for _, file := range []string{"iana-ipv4-special-registry.csv", "iana-ipv6-special-registry.csv"} {
		for _, row := range registry(t, file) {
			addrs = append(addrs, sample(netip.MustParsePrefix(row[0]))...)
		}
	}
	for _, s := range []string{
		"8.8.8.8", "192.80.8.124", "168.63.129.16", "169.254.42.42", "100.96.0.96", "127.1.2.3", "0.0.0.1",
		"2606:4700::1", "200::1", "4000::1", "5f00::1", "8000::1", "e000::1", "fe00::1", "fec0::1", "ff02::1", "fd00:42::42", "::8.8.8.8",
		// ISATAP with the universal and group bits in any state (RFC 5214, 6.1)
		"2a00::5efe:a00:1", "2a00::100:5efe:a00:1", "2a00::200:5efe:a00:1", "2a00::300:5efe:a00:1", "2a00::300:5efe:808:808",
	} {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	accepted := func(a netip.Addr, private bool) bool {
		text := fmt.Sprintf("version = 1\n[[egress.allow]]\ncidrs = [\"%s/%d\"]\nports = [80]\nprivate = %v\n", a, a.BitLen(), private)
		_, err := policies.Parse("x.toml", []byte(text), nil)
		return err == nil
	}
	for _, a := range addrs {
		if a.Is4In6() {
			continue // refused as it is written
		}
		class := Classify(a)
		if accepted(a, false) && class != ClassPublic {
			t.Errorf("%v is taken without private, and is %v", a, class)
		}
		if firm := slices.Contains([]Class{ClassLoopback, ClassUnspecified}, class); accepted(a, true) == firm && Classify(a) == range6or4(a) {
			t.Errorf("%v (%v) with private: accepted %v", a, class, !firm)
		}
	}
}

// range6or4 is the class of the address itself, without what is in it.
func range6or4(a netip.Addr) Class {
	if a.Is4() {
		return range4(a.As4())
	}
	return range6(a.As16())
}
