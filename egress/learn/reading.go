package learn

import (
	"path"
	"strings"
	"unicode"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// leftShut says why no rule is learned from ev; "" if one is.
func leftShut(ev audit.Event) string {
	if ev.Port == 0 && transport(ev) != policies.ICMP {
		return "port 0, which no rule can open"
	}
	if ev.Action == egress.Peek.String() {
		return "the capture doesn't hold the client's first bytes, which decide"
	}
	switch ev.Reason {
	case egress.ReasonHostAddress.String():
		return "the host's own address; a line in [hosts] would lead there"
	case egress.ReasonMetadata.String():
		return "a cloud's metadata service"
	case egress.ReasonDenyRule.String():
		return "deny rule " + ev.Rule
	case egress.ReasonQUIC.String():
		return "QUIC; clients fall back to TCP"
	case egress.ReasonPathAmbiguous.String():
		return "a path that no rule can vouch for"
	case egress.ReasonInvalid.String(), egress.ReasonHostMismatch.String(), egress.ReasonUnreadable.String(), egress.ReasonLimit.String():
		return "refused whatever the rules: " + ev.Reason
	}
	if _, known := egress.ReasonOf(ev.Reason); !known && ev.Action == egress.Deny.String() {
		return "refused whatever the rules: " + ev.Reason // by the proxy: a placeholder in the wrong place, say
	}
	return ""
}

// special reports whether the destination needs a private rule. What [hosts]
// leads to doesn't.
func special(ev audit.Event) bool {
	if ev.Target != "" {
		return false
	}
	return egress.Classify(ev.Dst) != egress.ClassPublic
}

// transport is the layer that a rule by address goes by.
func transport(ev audit.Event) policies.Protocol {
	switch ev.Proto {
	case egress.UDP.String():
		return policies.UDP
	case egress.ICMP.String():
		return policies.ICMP
	}
	return policies.TCP
}

// protocolOf is what a rule for the flow speaks of. What was seen decides; where
// nothing was, the port does, as it does in a policy without the key.
func protocolOf(ev audit.Event) policies.Protocol {
	t := transport(ev)
	switch {
	case t != policies.TCP:
		return t
	case ev.SNI != "" || ev.Scheme == "https" || ev.Scheme == "" && ev.Port == 443:
		return policies.HTTPS
	case ev.Method != "" || ev.Host != "" || ev.Port == 80:
		return policies.HTTP
	}
	return policies.TCP
}

// namesOf returns the names that a rule would be about: what the client said if
// that is pinned to the address, else everything that is. A name that isn't
// pinned helps no rule: the address it is, then.
func namesOf(ev audit.Event) []hostname.Name {
	var pinned []hostname.Name
	for _, s := range ev.Names {
		n, err := hostname.Parse(s)
		if err != nil {
			continue
		}
		if s := n.String(); s == ev.SNI || s == ev.Host {
			return []hostname.Name{n}
		}
		pinned = append(pinned, n)
	}
	if ev.SNI != "" || ev.Host != "" {
		return nil
	}
	return pinned
}

const (
	// maxGlob is what a policy takes of a path glob, in bytes; maxSegment is what one segment may have of it.
	maxGlob    = 512
	maxSegment = 255
)

// glob is the narrowest glob of a policy that matches a clean path. A guest chooses its paths: a star in one must
// not stand for more than its segment, and what a policy file can't hold must not make it one that can't be loaded.
func glob(clean string) string {
	segments := strings.Split(clean, "/")
	length := 0
	for i, s := range segments {
		if len(s) > maxSegment || strings.ContainsFunc(s, func(r rune) bool { return r == '*' || !unicode.IsPrint(r) }) {
			segments[i] = "*"
		}
		if length += len(segments[i]) + len("/"); length > maxGlob-len("/**") {
			return strings.Join(segments[:i], "/") + "/**"
		}
	}
	return strings.Join(segments, "/")
}

// directory is the path without its last segment, "" for one in the root.
func directory(clean string) string {
	if d := path.Dir(clean); d != "/" {
		return d
	}
	return ""
}
