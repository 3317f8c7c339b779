package egress

// Class is what kind of address an address is. Only ClassPublic may be dialled
// without a private rule or a line in [hosts].
type Class uint8

// The classes of docs/security.md. The zero value is an invalid address.
const (
	ClassInvalid Class = iota
	// ClassPublic is what remains after all others.
	ClassPublic
	// ClassUnspecified is 0.0.0.0/8 and ::, which kernels take for the host.
	ClassUnspecified
	// ClassLoopback is 127.0.0.0/8 and ::1.
	ClassLoopback
	// ClassPrivate is RFC 1918, RFC 4193 (fc00::/7) and the old site-local
	// fec0::/10.
	ClassPrivate
	// ClassShared is the carrier's 100.64.0.0/10 (RFC 6598), also used by
	// overlay networks and clouds.
	ClassShared
	// ClassLinkLocal is 169.254.0.0/16 and fe80::/10.
	ClassLinkLocal
	// ClassMulticast is 224.0.0.0/4 and ff00::/8.
	ClassMulticast
	// ClassBroadcast is 255.255.255.255.
	ClassBroadcast
	// ClassDocumentation is TEST-NET-1 to 3, 2001:db8::/32 and 3fff::/20.
	ClassDocumentation
	// ClassBenchmark is 198.18.0.0/15 and 2001:2::/48. Addresses for [hosts]
	// come from it, so that nothing outside is shadowed.
	ClassBenchmark
	// ClassProtocol is ranges of protocols: 192.0.0.0/24, 2001::/23 and others.
	ClassProtocol
	// ClassTranslated is ranges that translators and tunnels take apart
	// (6to4, Teredo, local NAT64), where the inner address is public.
	ClassTranslated
	// ClassReserved is 240.0.0.0/4 and IPv6 outside 2000::/3.
	ClassReserved
	// ClassMetadata is an endpoint of a cloud's instance metadata.
	ClassMetadata
	// ClassGateway is an address of the sandbox's own gateway.
	ClassGateway
	// ClassHost is an address of one of the host's interfaces.
	ClassHost
)

// text returns the code and a few words for people.
func (c Class) text() (code, words string) {
	switch c {
	case ClassInvalid:
		return "invalid", "not an address"
	case ClassPublic:
		return "public", "public"
	case ClassUnspecified:
		return "unspecified", "the unspecified address, which kernels take for the host"
	case ClassLoopback:
		return "loopback", "loopback, the host itself"
	case ClassPrivate:
		return "private", "a private range"
	case ClassShared:
		return "shared", "carrier-grade NAT or overlay range"
	case ClassLinkLocal:
		return "link_local", "link-local"
	case ClassMulticast:
		return "multicast", "multicast"
	case ClassBroadcast:
		return "broadcast", "broadcast"
	case ClassDocumentation:
		return "documentation", "a documentation range"
	case ClassBenchmark:
		return "benchmark", "the benchmarking range"
	case ClassProtocol:
		return "protocol", "a range assigned to protocols"
	case ClassTranslated:
		return "translated", "an address that a tunnel or translator takes apart"
	case ClassReserved:
		return "reserved", "a reserved range"
	case ClassMetadata:
		return "metadata", "a cloud's metadata service"
	case ClassGateway:
		return "gateway", "the sandbox's own gateway"
	case ClassHost:
		return "host", "one of the host's own addresses"
	}
	return "unknown", "unknown"
}

// String returns a stable code, such as "link_local".
func (c Class) String() string { code, _ := c.text(); return code }

// Sentence returns a few words for people, such as "a private range".
func (c Class) Sentence() string { _, words := c.text(); return words }

// Public reports whether an address of this class needs no private rule.
func (c Class) Public() bool { return c == ClassPublic }

// final reports whether no rule opens the class: what means the host, or the
// gateway itself, is reached by [hosts] only, or not at all.
func (c Class) final() bool {
	switch c {
	case ClassInvalid, ClassUnspecified, ClassLoopback, ClassGateway, ClassHost:
		return true
	case ClassPublic, ClassPrivate, ClassShared, ClassLinkLocal, ClassMulticast, ClassBroadcast,
		ClassDocumentation, ClassBenchmark, ClassProtocol, ClassTranslated, ClassReserved, ClassMetadata:
		return false
	}
	return true
}

// reason is why an address of this class is denied.
func (c Class) reason() Reason {
	switch c {
	case ClassInvalid:
		return ReasonInvalid
	case ClassUnspecified, ClassLoopback, ClassGateway, ClassHost:
		return ReasonHostAddress
	case ClassMetadata:
		return ReasonMetadata
	case ClassPublic, ClassPrivate, ClassShared, ClassLinkLocal, ClassMulticast, ClassBroadcast,
		ClassDocumentation, ClassBenchmark, ClassProtocol, ClassTranslated, ClassReserved:
		return ReasonSpecialAddress
	}
	return ReasonInvalid
}
