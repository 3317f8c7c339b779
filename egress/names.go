package egress

import (
	"net/netip"
	"strings"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// DecideName says whether the resolver may look n up: whether [hosts], an allow
// rule by name or the default could let a flow to n out. Rules by address don't
// count: if one of them opened every name, a lookup would carry data out to
// whoever serves the name's zone.
func (e *Engine) DecideName(n hostname.Name) Verdict {
	v := e.judgeName(n)
	if v.Action == Deny && e.report && v.Reason.Reportable() {
		v.Action, v.WouldDeny = Allow, true
	}
	if e.floor == nil || v.Action == Deny {
		return v
	}
	return stricter(v, e.floor.DecideName(n))
}

func (e *Engine) judgeName(n hostname.Name) Verdict {
	v := Verdict{Name: n}
	if n.IsZero() {
		v.Reason = ReasonInvalid
		return v
	}
	m, mapped := e.mapped[n]
	if reason, special := SpecialName(n); special && !mapped {
		v.Reason = reason
		return v
	}
	if r := e.firstByName(e.deny, n, (*rule).deniesName); r != nil {
		return v.by(Deny, ReasonDenyRule, r)
	}
	if mapped {
		v.Action, v.Reason, v.Rule = Allow, ReasonHosts, m.rule
		return v
	}
	resolver := e.resolvers.hasName(n)
	internal := internalName(n)
	each := e.allow.names.each
	if internal { // "*" opens what is public
		each = e.allow.names.eachNamed
	}
	var r *rule
	each(n, func(match *rule, exact bool) bool {
		if exact || !resolver {
			keepFirst(&r, match)
		}
		return true
	})
	switch {
	case r != nil:
		return v.by(Allow, ReasonRule, r)
	case internal && (e.public || e.report):
		v.Reason = ReasonLocalName
	case resolver:
		v.Reason = ReasonEncryptedDNS
	case e.public:
		v.Action, v.Reason = Allow, ReasonDefaultPublic
	default:
		v.Reason = ReasonNoRule
	}
	return v
}

// deniesName reports whether a deny rule that matches a name leaves no flow to
// it: no port, no request and no transport is exempt.
func (r *rule) deniesName(bool) bool {
	return len(r.ports) == 0 && !r.request && r.proto == policies.Any
}

// firstByName returns the rule that stands first in x among those that match n
// and pass ok.
func (e *Engine) firstByName(x *ruleIndex, n hostname.Name, ok func(r *rule, exact bool) bool) *rule {
	var by *rule
	x.eachByName(n, func(r *rule, exact bool) {
		if ok(r, exact) {
			keepFirst(&by, r)
		}
	})
	return by
}

func (v Verdict) by(a Action, reason Reason, r *rule) Verdict {
	v.Action, v.Reason = a, reason
	v.Rule, v.Why, v.Protocol = r.name, r.why, r.proto
	return v
}

// AllowsAddr says whether a may be an answer for n and be pinned to it: a public
// address may, unless every rule for the name has ranges of its own (within) and
// none holds a; any other only if such a range does. Private rules are about
// addresses, and open none for a name. It doesn't say that n may be resolved: ask
// DecideName first. Report mode opens nothing here that isn't public.
func (e *Engine) AllowsAddr(n hostname.Name, a netip.Addr) Verdict {
	v := e.judgeAddr(n, plainAddr(a))
	if e.floor == nil || v.Action == Deny {
		return v
	}
	return stricter(v, e.floor.AllowsAddr(n, a))
}

func (e *Engine) judgeAddr(n hostname.Name, a netip.Addr) Verdict {
	v := Verdict{Name: n, Addr: a, Class: e.classifier.class(a)}
	if v.Class.final() {
		v.Reason = v.Class.reason()
		return v
	}
	var by, narrow *rule
	e.allow.eachByName(n, func(r *rule, _ bool) {
		if opened, ok := r.mayHave(a, v.Class); ok {
			keepFirst(&by, r)
			v.Range = opened
		} else {
			keepFirst(&narrow, r)
		}
	})
	switch {
	case by != nil:
		v.Special = v.Class != ClassPublic
		return v.by(Allow, ReasonRule, by)
	case v.Class != ClassPublic:
		v.Reason = v.Class.reason()
		return v
	case narrow != nil && !e.public && !e.report:
		return v.by(Deny, ReasonWithin, narrow)
	}
	v.Action, v.Reason = Allow, ReasonRule
	return v
}

// SpecialName reports whether n means the host, nothing public, or a cloud's
// metadata service, and why. Such names are never resolved, unless [hosts] maps
// them. Reverse names of addresses that aren't public are among them. Names of one label count: resolvers complete them with a search domain,
// and a top-level domain is nobody's host.
func SpecialName(n hostname.Name) (Reason, bool) {
	s := n.String()
	if metadataName(s) {
		return ReasonMetadataName, true
	}
	if strings.IndexByte(s, '.') < 0 || localZone(n) {
		return ReasonLocalName, true
	}
	if clusterName(s) {
		return ReasonNone, false // internalName asks for a rule that names it
	}
	switch s[strings.LastIndexByte(s, '.')+1:] {
	case "localhost", // RFC 6761, 6.3
		"local",       // RFC 6762: multicast DNS
		"localdomain", // /etc/hosts of most systems
		"invalid",     // RFC 6761, 6.4
		"onion",       // RFC 7686
		"alt":         // RFC 9476
		return ReasonLocalName, true
	}
	switch s {
	case "host.docker.internal", "gateway.docker.internal", "kubernetes.docker.internal", // Docker Desktop
		"host.containers.internal", "host.lima.internal", "host.orb.internal": // Podman, Lima, OrbStack
		return ReasonLocalName, true
	}
	return ReasonNone, false
}

// metadataName reports whether s is a name of a cloud's metadata service, or
// below one. Sources are the clouds' own documentation, as of 2025.
func metadataName(s string) bool {
	for s != "" {
		switch s {
		case "metadata", "instance-data", "rancher-metadata",
			"metadata.google.internal", "metadata.goog", // GCE
			"instance-data.ec2.internal",   // EC2
			"metadata.tencentyun.com",      // Tencent Cloud
			"metadata.packet.net",          // Equinix Metal
			"metadata.platformequinix.com", // Equinix Metal
			"api.metadata.cloud.ibm.com",   // IBM Cloud
			"metadata.nifcloud.internal",   // NIFCLOUD
			"metadata.azure.internal":      // Azure
			return true
		}
		_, s, _ = strings.Cut(s, ".")
	}
	return false
}
