package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

const (
	// shownDenials is how many destinations the end of a run names, shownHost how many bytes of each.
	shownDenials = 3
	shownHost    = 64
)

// noteDenials says at the end of a run what was denied, and how to let it out and see all of it.
func noteDenials(ui *ui, s *audit.DenialSummary, cfg *sandbox.Config) {
	if s.Empty() {
		return
	}
	ui.note("%s", deniedLine(s))
	words := make([]string, 0, 2)
	if cfg.Floor != nil {
		words = append(words, "the floor and the policy both have to allow it")
	} else {
		words = append(words, remedies(s)...)
	}
	switch {
	case cfg.Audit != "":
		words = append(words, "all of them: "+cfg.Audit)
	case cfg.Name != "":
		words = append(words, "all of them: msb events "+cfg.Name+" --denied")
	default:
		words = append(words, "all of them: --audit FILE")
	}
	ui.note("%s", strings.Join(words, "; "))
}

// deniedLine is "3 denied: evil.example:443 (no rule), …".
func deniedLine(s *audit.DenialSummary) string {
	var head []string
	if s.Denied > 0 {
		head = append(head, fmt.Sprintf("%d denied", s.Denied))
	}
	if s.WouldDeny > 0 {
		head = append(head, fmt.Sprintf("%d let through that rules would deny", s.WouldDeny))
	}
	shown := s.List[:min(len(s.List), shownDenials)]
	parts := make([]string, 0, len(shown)+1)
	for i := range shown {
		parts = append(parts, destination(&shown[i])+" ("+because(&shown[i])+")")
	}
	if s.Others > 0 || len(s.List) > len(shown) {
		parts = append(parts, "others")
	}
	return strings.Join(head, ", ") + ": " + strings.Join(parts, ", ")
}

// because is a reason in words, with the rule that denies.
func because(d *audit.Denial) string {
	text := strings.ReplaceAll(d.Reason, "_", " ")
	if d.Reason == egress.ReasonDenyRule.String() && d.Rule != "" {
		text += " " + strconv.Quote(shorten(d.Rule))
	}
	return text
}

// destination is where the guest wanted to go. A name that could pass for something else is quoted.
func destination(d *audit.Denial) string {
	host := shorten(d.Host)
	if !plainHost(d.Host) {
		host = strconv.Quote(host)
	}
	switch {
	case d.Port == 0 && d.Proto == egress.ICMP.String():
		return host + "/icmp"
	case d.Port == 0:
		return host
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	host += ":" + strconv.Itoa(int(d.Port))
	if d.Proto == egress.UDP.String() {
		host += "/udp"
	}
	return host
}

func shorten(s string) string {
	if len(s) <= shownHost {
		return s
	}
	return strings.ToValidUTF8(s[:shownHost], "") + "…"
}

// plainHost reports whether a host is an address or a name of letters, digits, "-", "_" and ".", so that it can be shown
// as it is, and copied into a shell.
func plainHost(s string) bool {
	if a, err := netip.ParseAddr(s); err == nil {
		return a.Zone() == ""
	}
	return s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == ""
}

// remedies say what opens the destinations that are named: flags where flags do, else what does.
func remedies(s *audit.DenialSummary) []string {
	var flags, words []string
	guessed := false
	for i := range s.List[:min(len(s.List), shownDenials)] {
		d := &s.List[i]
		if flag := allowFlag(d); flag != "" {
			if flag = "--allow " + shellQuoted([]string{flag}); !slices.Contains(flags, flag) {
				flags = append(flags, flag)
			}
			guessed = guessed || d.DNS
			continue
		}
		if w := otherRemedy[d.Reason]; w != "" && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	if len(flags) > 0 {
		text := "allow with " + strings.Join(flags, " ")
		if guessed {
			text += " (443 or the port that it needs)"
		}
		words = append([]string{text}, words...)
	}
	return words
}

// otherRemedy is what opens a destination that --allow alone doesn't, by reason. A reason that isn't here has none but
// the policy's own words.
var otherRemedy = map[string]string{
	egress.ReasonMetadata.String():     "that address hands out this machine's own credentials: only a private rule for exactly this address opens it",
	egress.ReasonMetadataName.String(): "that name leads to this machine's own credentials, and stays closed",
	egress.ReasonHostAddress.String():  "this machine's own services are reached by a name in the policy's [hosts]",
	egress.ReasonLocalName.String():    "a name inside of a network needs a line in the policy's [hosts]",
	egress.ReasonRebinding.String():    "the name has private addresses, which docs/policy.md says how to allow",
	egress.ReasonNotPinned.String():    "the guest has to resolve the name itself",
	egress.ReasonMethod.String():       "the rule's methods are in the policy",
	egress.ReasonPath.String():         "the rule's paths are in the policy",
	egress.ReasonDenyRule.String():     "a deny rule is the policy's to take back",
	egress.ReasonLimit.String():        "bounds are in the policy's [limits]",
}

// allowFlag is the argument of --allow that opens a destination; "" where none does.
func allowFlag(d *audit.Denial) string {
	if !plainHost(d.Host) {
		return ""
	}
	addr, _ := netip.ParseAddr(d.Host)
	to := destination(&audit.Denial{Host: d.Host, Port: d.Port, Proto: d.Proto})
	switch d.Reason {
	case egress.ReasonNoRule.String(), egress.ReasonPort.String():
		if d.DNS {
			to = d.Host + ":443"
		}
		if strings.HasSuffix(strings.ToLower(strings.TrimSuffix(d.Host, ".")), ".arpa") {
			return "" // the name of an address: nobody connects to it
		}
	case egress.ReasonSpecialAddress.String():
		if !addr.IsValid() {
			return ""
		}
		to = strings.TrimSuffix(strings.TrimSuffix(to, "/udp"), "/icmp") + "/" + d.Proto + "+private"
	default:
		return ""
	}
	if _, err := policies.ParseAllowFlag(to); err != nil || len(d.Host) > shownHost {
		return ""
	}
	return to
}
