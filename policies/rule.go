package policies

import (
	"net/netip"

	"github.com/msb-project/msb/hostname"
)

// EgressRules is what may leave. The order of judgement: special-purpose floor, deny
// rules, allow rules, default.
type EgressRules struct {
	Default DefaultAction
	Mode    Mode
	Allow   []Rule
	Deny    []Rule
}

// Rule is one [[egress.allow]] or [[egress.deny]].
//
// Destination: Hosts or CIDRs, never both in one rule; a rule with neither
// (only possible in deny) is about every destination. Hosts match the name that
// dnsguard pinned to the destination address and, on https and tls, the SNI, and
// on http, the Host. CIDRs match the destination address. Within are the only
// addresses that the names of Hosts may have; without it, every public one. The
// names of a rule reach special-purpose addresses through Within alone, so that the
// zone of a name never chooses what it opens, and a private rule is about addresses
// whatever they are called.
//
// Ports: the destination port is in one of the ranges. In an allow rule from
// Load, Ports is empty only for ICMP, and for Any, where it means every port.
// In a deny rule, empty means every port.
//
// Protocol: in an allow rule from Load it is never the result of an omitted
// key: the key's default with hosts depends on the ports (443: https, 80: http,
// others: tcp), and a rule over several of these is split into rules called
// "name (https)", "name (http)" and "name (tcp)"; with cidrs it is tcp. Any stands there only if the
// file says "any": TCP, UDP and ICMP alike, with names matched by pin alone. In
// a deny rule an omitted protocol is Any, and https, http and tls deny the
// transport they run on (TCP) unless Methods or Paths narrow them.
//
// Methods and Paths: only with https and http, and with Any in a deny rule; they
// make the rule inspected. A request matches if its method is in Methods (or Methods is empty) and its
// path matches one of Paths (or Paths is empty).
type Rule struct {
	// Name is unique among the rules of a policy; a rule without one is called
	// by its list and place, "allow[2]".
	Name  string
	Hosts []hostname.Pattern
	CIDRs []netip.Prefix
	// Within goes with Hosts only, in an allow rule. 0.0.0.0/0 and ::/0 in it stand
	// for every public address, another range for all that it holds (OpensSpecial); a
	// metadata address is reached only by a /32 or /128 that names it.
	Within []netip.Prefix
	Ports  []PortRange
	// Protocol: see above.
	Protocol Protocol
	// Methods are upper case.
	Methods []string
	// Paths are globs over the decoded, cleaned path, matched by MatchPath:
	// "*" is any run of characters but "/", "**" any run of characters.
	// "/a/**" matches "/a/" and all below it, not "/a" itself.
	Paths []string
	// Private lets CIDRs reach into special-purpose ranges. A metadata address
	// is reached only by a /32 or /128 that names it.
	Private bool
	// Why is a sentence for people, shown with verdicts.
	Why string
	Pos Position
}

// PortRange is First to Last, both included, both at least 1.
type PortRange struct{ First, Last uint16 }

// Contains reports whether port is in r.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

// DefaultAction is what happens to a flow that no rule matches.
type DefaultAction uint8

// The values of egress.default. The zero value denies.
const (
	// DefaultDeny ("deny") lets out only what an allow rule names.
	DefaultDeny DefaultAction = iota
	// DefaultPublic ("public") lets out every flow to a public address.
	DefaultPublic
)

// Mode says whether verdicts are enforced.
type Mode uint8

// The values of egress.mode. The zero value enforces.
const (
	// Enforce ("enforce") acts on every verdict.
	Enforce Mode = iota
	// Report ("report") lets through what a rule or the default would deny,
	// and logs it as would_deny. Special-purpose ranges stay shut.
	Report
)

// Protocol is what a rule speaks of.
type Protocol uint8

// The values of a rule's protocol. The zero value is Any.
const (
	// Any ("any") is TCP, UDP and ICMP.
	Any Protocol = iota
	// HTTPS ("https") is TLS over TCP with HTTP in it: the SNI must be an
	// allowed name pinned to the address; inspected where methods, paths, a
	// secret or tls.inspect ask for it.
	HTTPS
	// HTTP ("http") is HTTP over TCP, judged by its Host header.
	HTTP
	// ProtocolTLS is TLS over TCP with anything in it ("tls"; the name TLS is
	// taken by the [tls] table): SNI as with HTTPS, never
	// inspected.
	ProtocolTLS
	// TCP ("tcp") is any TCP; nothing is peeked at, names match by pin.
	TCP
	// UDP ("udp") is any UDP; names match by pin.
	UDP
	// ICMP ("icmp") is echo requests and their answers; it has no ports.
	ICMP
)

// Transport is the layer below HTTP and TLS.
func (p Protocol) Transport() Protocol {
	switch p {
	case HTTPS, HTTP, ProtocolTLS, TCP:
		return TCP
	case Any, UDP, ICMP:
	}
	return p
}

// Inspect says which TLS connections secretproxy opens.
type Inspect uint8

// The values of tls.inspect. The zero value is auto.
const (
	// InspectAuto ("auto") opens a connection where a rule has methods or
	// paths, or a secret may go, and every https connection where
	// InspectionCause names a rule and the default is to deny.
	InspectAuto Inspect = iota
	// InspectAll ("all") opens every https connection.
	InspectAll
	// InspectNone ("none") opens none; secrets and rules with methods or paths
	// are then an error.
	InspectNone
)
