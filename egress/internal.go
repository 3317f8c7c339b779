package egress

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// internalName reports whether n is below a domain that is nobody's on the
// Internet, so that only a network's own resolver knows it. Such a name is
// looked up only if a rule names it or a domain above it: sent to a public
// resolver it tells what the network inside is called.
func internalName(n hostname.Name) bool {
	s := n.String()
	switch s[strings.LastIndexByte(s, '.')+1:] {
	case "internal", // reserved by ICANN for private use, 2024
		"intranet", "private", "corp", "home", "lan", // RFC 6762, appendix G
		"mail", // never delegated: ICANN's report on name collisions
		"test": // RFC 6761, 6.2
		return true
	}
	return s == "home.arpa" || strings.HasSuffix(s, ".home.arpa") || // RFC 8375
		clusterName(s)
}

// clusterName reports whether s is below the domain that Kubernetes gives to a
// cluster, unless it is set up with another. It is no name of multicast DNS, though
// it ends in local: the cluster's own resolver has it.
func clusterName(s string) bool {
	return s == "cluster.local" || strings.HasSuffix(s, ".cluster.local")
}

// localZone reports whether n is in a zone that every resolver has for itself:
// the zones of RFC 6303 and their kind, the reverse names of addresses that
// aren't public, and what clients ask about their resolver (RFC 9462).
func localZone(n hostname.Name) bool {
	s := n.String()
	if s == "resolver.arpa" || strings.HasSuffix(s, ".resolver.arpa") {
		return true
	}
	if rest, ok := strings.CutSuffix(s, ".in-addr.arpa"); ok {
		return !publicReverse(rest, reverseForm{base: 10, step: 8, size: 4, delegated: 24})
	}
	if rest, ok := strings.CutSuffix(s, ".ip6.arpa"); ok {
		return !publicReverse(rest, reverseForm{base: 16, step: 4, size: 16, delegated: 32})
	}
	return false
}

// reverseForm is how reverse names of one family are written: a number to base
// of step bits in each label, for addresses of size bytes. Labels that are no
// numbers stand below prefixes of at least delegated bits (RFC 2317).
type reverseForm struct{ base, step, size, delegated int }

// publicReverse reports whether the labels in front of a reverse zone are about
// public addresses. A label that isn't written as it should be ends the prefix;
// where the prefix alone doesn't show that all below it is public, it isn't.
func publicReverse(labels string, form reverseForm) bool {
	var first [16]byte
	bits := 0
	for labels != "" && bits < 8*form.size {
		dot := strings.LastIndexByte(labels, '.')
		label := labels[dot+1:]
		n, err := strconv.ParseUint(label, form.base, form.step)
		if err != nil || strconv.FormatUint(n, form.base) != label {
			break
		}
		first[bits/8] |= byte(n << (8 - form.step - bits%8))
		bits += form.step
		labels = labels[:max(dot, 0)]
	}
	last := first
	for i := bits; i < 8*form.size; i++ {
		last[i/8] |= 1 << (7 - i%8)
	}
	low, _ := netip.AddrFromSlice(first[:form.size])
	high, _ := netip.AddrFromSlice(last[:form.size])
	lowest, highest := Classify(low).Public(), Classify(high).Public()
	if labels != "" {
		return bits >= form.delegated && lowest && highest
	}
	return lowest || highest
}
