package policies

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/hostname"
)

// hostsRule begins what a verdict by a line of [hosts] alone is named after.
const hostsRule = "hosts."

// checkRule checks what one rule says on its own: that its parts fit together
// and that it can match something.
func (f *faults) checkRule(key string, allow bool, r Rule) {
	if strings.TrimSpace(r.Name) == "" || strings.ContainsFunc(r.Name, isControl) {
		f.add(key+".name", "it is empty or holds control characters", "verdicts and logs show it; write a word or two")
	}
	if strings.HasPrefix(r.Name, hostsRule) {
		f.add(key+".name", fmt.Sprintf("names that begin with %q are those of lines in [hosts], in verdicts and logs", hostsRule), "give it another name")
	}
	if strings.ContainsFunc(r.Why, isControl) {
		f.add(key+".why", "it holds control characters", "write one line of plain text")
	}
	switch {
	case len(r.Hosts) > 0 && len(r.CIDRs) > 0:
		f.add(key, "it has both hosts and cidrs", "write two rules, one for the names and one for the addresses")
	case allow && len(r.Hosts)+len(r.CIDRs) == 0:
		f.lacks(key, "hosts cidrs", "it has neither hosts nor cidrs, so it can never match", "say which destinations it allows")
	case !allow && len(r.Hosts)+len(r.CIDRs)+len(r.Ports) == 0 && r.Protocol == Any:
		f.lacks(key, "hosts cidrs ports protocol", "it denies everything", "leave it out and write default = \"deny\", or say what it is about")
	}
	f.checkHTTP(key, allow, r)
	f.checkPorts(key, allow, r)
	if allow {
		f.checkHosts(key, r)
	}
	f.checkPrivate(key, allow, r)
	f.checkWithin(key, allow, r)
}

// checkHTTP checks methods and paths.
func (f *faults) checkHTTP(key string, allow bool, r Rule) {
	if len(r.Methods)+len(r.Paths) == 0 {
		return
	}
	if r.Protocol != HTTPS && r.Protocol != HTTP && (allow || r.Protocol != Any) {
		f.add(key, fmt.Sprintf("methods and paths are seen in http and https only, and protocol is %s", r.Protocol), "write protocol = \"https\" or \"http\", or leave methods and paths out")
	}
	for i, m := range r.Methods {
		switch {
		case m == "" || strings.ContainsFunc(m, func(c rune) bool { return !isToken(c) }):
			f.add(fmt.Sprintf("%s.methods[%d]", key, i), fmt.Sprintf("%q is not an HTTP method", m), "write one such as \"GET\"")
		case m != strings.ToUpper(m):
			f.add(fmt.Sprintf("%s.methods[%d]", key, i), fmt.Sprintf("%q can never match, since methods are upper case", m), fmt.Sprintf("write %q", strings.ToUpper(m)))
		case allow && (m == "TRACE" || m == "CONNECT"):
			f.add(fmt.Sprintf("%s.methods[%d]", key, i), m+" is refused whatever rules say", "leave it out")
		}
	}
	for i, p := range r.Paths {
		if err := checkGlob(p); err != nil {
			f.addErr(fmt.Sprintf("%s.paths[%d]", key, i), err)
		}
	}
}

// checkPorts checks that ports go with the protocol.
func (f *faults) checkPorts(key string, allow bool, r Rule) {
	switch {
	case r.Protocol == ICMP && len(r.Ports) > 0:
		f.add(key+".ports", "icmp has no ports", "leave ports out")
	case allow && len(r.Ports) == 0 && (r.Protocol == TCP || r.Protocol == UDP):
		f.add(key, fmt.Sprintf("protocol %s needs ports", r.Protocol), "add ports = [443], or ports = [\"1-65535\"] for all of them")
	case allow && len(r.Ports) == 0 && r.Protocol != ICMP && r.Protocol != Any:
		f.lacks(key, "ports", "it has no ports", "add ports = [443]")
	case allow && len(r.Ports) > 0 && !slices.ContainsFunc(r.Ports, func(p PortRange) bool { return p != PortRange{portDNS, portDNS} }):
		f.add(key+".ports", "it can never match: every packet to port 53 is answered by msb's own resolver", "leave the rule out; a name that any rule allows is resolved, and [dns] servers says by whom")
	}
	for i, p := range r.Ports {
		if p.First == 0 || p.First > p.Last {
			f.add(fmt.Sprintf("%s.ports[%d]", key, i), fmt.Sprintf("the range %s is empty", p), "ports run from 1 to 65535, first to last")
		}
	}
}

// neverPublic are names that dnsguard resolves for nobody: they mean the host
// itself or the instance metadata service.
var neverPublic = []hostname.Pattern{
	hostname.MustParsePattern("*.localhost"),
	hostname.MustParsePattern("metadata.google.internal"),
	hostname.MustParsePattern("instance-data.ec2.internal"),
}

// checkHosts refuses hosts of allow rules that are never resolved.
func (f *faults) checkHosts(key string, r Rule) {
	for i, h := range r.Hosts {
		place := fmt.Sprintf("%s.hosts[%d]", key, i)
		if !h.Wildcard() && h.Base().Parent().IsZero() {
			f.add(place, fmt.Sprintf("%q can never match: a name without a dot means the host itself or nothing public", h), "map it in [hosts] to the address it stands for")
			continue
		}
		if slices.ContainsFunc(neverPublic, func(n hostname.Pattern) bool { return n.Covers(h) }) {
			f.add(place, fmt.Sprintf("%q can never match: it means the host itself or its metadata service", h), "map it in [hosts] to the address it stands for")
		}
	}
}

// checkPrivate checks ranges against the special-purpose ones.
func (f *faults) checkPrivate(key string, allow bool, r Rule) {
	switch {
	case !r.Private:
	case !allow:
		f.add(key+".private", "a deny rule reaches nothing", "leave private out: a deny rule covers private ranges as it is")
		return
	case len(r.CIDRs) == 0:
		f.add(key+".private", "private goes with cidrs: for a name, whoever runs its DNS would choose what opens", "write within with the ranges that the name may have, such as within = [\"10.20.0.0/16\"]")
		return
	}
	for i, p := range r.CIDRs {
		place := fmt.Sprintf("%s.cidrs[%d]", key, i)
		if p.Addr().Is4In6() || !p.IsValid() || p != p.Masked() {
			f.add(place, fmt.Sprintf("%q is not a plain range", p), "write IPv4 ranges as IPv4, without bits beyond the length")
			continue
		}
		if allow {
			f.checkRange(place, r.Private, p)
		}
	}
}

func (f *faults) checkRange(place string, private bool, p netip.Prefix) {
	special, touches := specialWithin(p)
	switch {
	case private && tooWide(p):
		f.add(place, fmt.Sprintf("private over %s opens every range there is", p), "name the ranges that are meant")
	case own(p):
		f.add(place, fmt.Sprintf("%s is the host itself, so the rule can never match", p), "map a name to it in [hosts]")
	case private || everything(p) || !touches:
		// 0.0.0.0/0 and ::/0 without private mean every public address.
	case metadata(p):
		f.add(place, fmt.Sprintf("%s is a cloud's metadata service", p.Addr()), "if the sandbox shall have the machine's own credentials, add private = true to this rule")
	case special.Bits() <= p.Bits():
		f.add(place, fmt.Sprintf("%s lies in the special-purpose range %s, so the rule can never match", p, special), "add private = true if it shall be reached")
	default:
		f.add(place, fmt.Sprintf("%s covers the special-purpose range %s, which stays shut", p, special), "split the range around it, or add private = true if it shall be reached")
	}
}

// isControl reports characters that would let a name or a sentence act on the
// terminal or forge a line of a log.
func isControl(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c == '\u061c' || c >= '\u200b' && c <= '\u200f' ||
		c >= '\u2028' && c <= '\u202e' || c >= '\u2060' && c <= '\u206f' || c == '\ufeff'
}

// isToken reports the characters of an HTTP token (RFC 9110, section 5.6.2).
func isToken(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
