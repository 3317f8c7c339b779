package egress

// Reason is why a verdict came out as it did. Its String is a stable code for
// logs and programs; docs/reasons.md lists them all.
type Reason uint8

// Reasons why a flow, name or request goes on.
const (
	// ReasonNone is the zero value; no verdict carries it.
	ReasonNone Reason = iota
	ReasonRule
	ReasonDefaultPublic
	ReasonHosts
	ReasonNeedsName
	ReasonNeedsRequest
	ReasonThisMachine
	ReasonPodOpen
)

// Reasons why one is denied.
const (
	ReasonNoRule Reason = iota + 32
	ReasonDenyRule
	ReasonPort
	ReasonSpecialAddress
	ReasonMetadata
	ReasonHostAddress
	ReasonLocalName
	ReasonMetadataName
	ReasonNotPinned
	ReasonNoName
	ReasonECH
	ReasonProtocol
	ReasonMethod
	ReasonPath
	ReasonPathAmbiguous
	ReasonQUIC
	ReasonEncryptedDNS
	ReasonInspectionOff
	ReasonInvalid
	ReasonHostMismatch
	ReasonUnreadable
	ReasonRebinding
	ReasonLimit
	ReasonWithin
	lastReason = ReasonWithin
)

// unknownReason is the code of what is no reason.
const unknownReason = "unknown"

// reasonText is a code and the sentence behind it, after "denied: HOST: ".
type reasonText struct{ code, sentence string }

// text is a switch and not a table, so that the exhaustive linter refuses a
// reason without a sentence.
func (r Reason) text() reasonText {
	switch r {
	case ReasonNone:
		return reasonText{"none", "no verdict was given"}
	case ReasonRule:
		return reasonText{"rule", "an allow rule covers it"}
	case ReasonDefaultPublic:
		return reasonText{"default_public", "no rule is about it, and the policy's default lets every public address be reached"}
	case ReasonHosts:
		return reasonText{"hosts", "the operator maps this name to a target in [hosts]"}
	case ReasonNeedsName:
		return reasonText{"needs_name", "the name in the TLS hello or the Host header decides"}
	case ReasonNeedsRequest:
		return reasonText{"needs_request", "it is allowed request by request, under inspection"}
	case ReasonThisMachine:
		return reasonText{"this_machine", "the client of a published port is this machine itself"}
	case ReasonPodOpen:
		return reasonText{"pod_open", "no rule of [[ingress.allow]] with cidrs says who may connect to this pod, so every client may"}
	default:
		return r.denial()
	}
}

func (r Reason) denial() reasonText {
	switch r {
	case ReasonNone, ReasonRule, ReasonDefaultPublic, ReasonHosts, ReasonNeedsName, ReasonNeedsRequest, ReasonThisMachine, ReasonPodOpen:
		return reasonText{}
	case ReasonNoRule:
		return reasonText{"no_rule", "no allow rule covers it; add one to the policy if it should be reachable"}
	case ReasonDenyRule:
		return reasonText{"deny_rule", "a deny rule covers it, and deny beats allow"}
	case ReasonPort:
		return reasonText{"port_not_allowed", "a rule names this destination, but not with this port and protocol"}
	case ReasonSpecialAddress:
		return reasonText{"special_address", "the address is not public, and no rule opens it: private = true with cidrs, or within with hosts"}
	case ReasonMetadata:
		return reasonText{"metadata_address", "the address serves a cloud's instance metadata; only a rule for exactly this address opens it, as /32 or /128"}
	case ReasonHostAddress:
		return reasonText{"host_address", "the address is the host's own; only a line in [hosts] leads to the host"}
	case ReasonLocalName:
		return reasonText{"local_name", "the name means the host itself or nothing public; a name inside of a network needs a rule or a line in [hosts] that names it"}
	case ReasonMetadataName:
		return reasonText{"metadata_name", "the name leads to a cloud's instance metadata"}
	case ReasonNotPinned:
		return reasonText{"not_pinned", "the address was not given out for this name by the sandbox's resolver; resolve the name through it first"}
	case ReasonNoName:
		return reasonText{"no_name", "the client said no host name that can be read, and the rules that cover this address go by name"}
	case ReasonECH:
		return reasonText{"ech", "the TLS hello is encrypted (ECH), so the name in it proves nothing"}
	case ReasonProtocol:
		return reasonText{"protocol_mismatch", "the bytes are not of the protocol that the rule allows here"}
	case ReasonMethod:
		return reasonText{"method_not_allowed", "no rule for this host allows the request's method"}
	case ReasonPath:
		return reasonText{"path_not_allowed", "no rule for this host allows the request's path"}
	case ReasonPathAmbiguous:
		return reasonText{"path_ambiguous", "servers disagree on how to read the request's path (encoded separators, dot segments, parameters), so no path rule can vouch for it"}
	case ReasonQUIC:
		return reasonText{"quic", "QUIC hides what the rules on this destination need to see; clients fall back to TLS over TCP"}
	case ReasonEncryptedDNS:
		return reasonText{"encrypted_dns", "it is a DNS resolver over TLS or HTTPS, which would go around the sandbox's own; only a rule that names it opens it"}
	case ReasonInspectionOff:
		return reasonText{"inspection_off", "the rules need the connection inspected, but tls.inspect or tls.bypass keeps it closed"}
	case ReasonInvalid:
		return reasonText{"invalid", "the flow's address, protocol or stage is not valid"}
	case ReasonHostMismatch:
		return reasonText{"host_mismatch", "the request's Host is not the name that the connection was opened for"}
	case ReasonUnreadable:
		return reasonText{"unreadable", "the TLS hello or the request's head can't be read without guessing"}
	case ReasonRebinding:
		return reasonText{"rebinding", "the DNS answer held addresses that the name may not have; within in the name's rule says which private ranges it may"}
	case ReasonWithin:
		return reasonText{"outside_within", "the rules for this name give it other ranges (within) than the one that the address is in"}
	case ReasonLimit:
		return reasonText{"limit", "a bound of [limits] or of the gateway is reached"}
	}
	return reasonText{unknownReason, "the reason is unknown"}
}

// String returns the stable code, such as "no_rule".
func (r Reason) String() string { return r.text().code }

// Sentence returns one sentence for people, without a full stop.
func (r Reason) Sentence() string { return r.text().sentence }

// aboutClass reports whether the address class is part of the reason.
func (r Reason) aboutClass() bool {
	return r == ReasonSpecialAddress || r == ReasonMetadata || r == ReasonHostAddress
}

// ReasonOf returns the reason with that code. It reports false for codes that aren't this package's.
func ReasonOf(code string) (Reason, bool) {
	for r := ReasonNone; r <= lastReason; r++ {
		if text := r.text(); text.code == code && code != unknownReason {
			return r, true
		}
	}
	return ReasonNone, false
}

// Reportable reports whether report mode lets a denial for r through. What
// rules and the default deny is; what leads to special-purpose ranges or the
// host is not, and neither is what contradicts the pins on an inspected request
// (see judgement.final).
func (r Reason) Reportable() bool {
	switch r {
	case ReasonNoRule, ReasonDenyRule, ReasonPort, ReasonNotPinned, ReasonNoName, ReasonECH, ReasonProtocol,
		ReasonMethod, ReasonPath, ReasonPathAmbiguous, ReasonQUIC, ReasonEncryptedDNS, ReasonInspectionOff, ReasonWithin:
		return true
	case ReasonNone, ReasonRule, ReasonDefaultPublic, ReasonHosts, ReasonNeedsName, ReasonNeedsRequest, ReasonThisMachine, ReasonPodOpen,
		ReasonSpecialAddress, ReasonMetadata, ReasonHostAddress, ReasonLocalName, ReasonMetadataName,
		ReasonInvalid, ReasonHostMismatch, ReasonUnreadable, ReasonRebinding, ReasonLimit:
	}
	return false
}

// closeness orders the reasons of miss by how much of the flow had fit.
func closeness(r Reason) int {
	order := [...]Reason{
		ReasonWithin, ReasonPort, ReasonEncryptedDNS, ReasonQUIC, ReasonProtocol, ReasonNoName, ReasonNotPinned,
		ReasonECH, ReasonInspectionOff, ReasonMethod, ReasonPath, ReasonPathAmbiguous,
	}
	for i, o := range order {
		if o == r {
			return i + 1
		}
	}
	return 0
}
