package main

import (
	"cmp"
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

// noteDenials says at the end of a run what was denied, how to allow it and how to see the rest. It also names allowed
// names that did not resolve, which no policy can fix.
func noteDenials(ui *ui, s *audit.DenialSummary, cfg *sandbox.Config) {
	noteUnresolved(ui, s)
	if s.Denied == 0 && s.WouldDeny == 0 {
		return
	}
	ui.note("%s", deniedLine(s))
	words := make([]string, 0, 2)
	if cfg.Floor != nil {
		words = append(words, "the floor and the policy both have to allow it")
	} else {
		words = append(words, remedies(s, cfg)...)
	}
	switch {
	case cfg.Name != "":
		words = append(words, "all of them: msb events "+cfg.Name+" --denied")
	case cfg.Audit != "":
		words = append(words, "all of them: "+cfg.Audit)
	default:
		words = append(words, "all of them: --audit FILE")
	}
	ui.note("%s", strings.Join(words, "; "))
}

// noteUnresolved is "1 allowed name did not resolve: api.exmaple.com (there is no such name); …".
func noteUnresolved(ui *ui, s *audit.DenialSummary) {
	n := len(s.Unresolved)
	if n == 0 {
		return
	}
	parts := make([]string, 0, shownDenials+1)
	for _, u := range s.Unresolved[:min(n, shownDenials)] {
		why := "there is no such name"
		if u.Why != "" {
			why = u.Why
		}
		parts = append(parts, quoted(shorten(u.Host), plainHost(u.Host))+" ("+why+")")
	}
	if n > shownDenials {
		parts = append(parts, "others")
	}
	names := "names"
	if n == 1 {
		names = "name"
	}
	ui.note("%d allowed %s did not resolve: %s; the policy is not the reason", n, names, strings.Join(parts, ", "))
}

// watchDenials calls do and then says what the audit log of the sandbox of that name reports as denied meanwhile. It says
// nothing if the log can't be read.
func watchDenials(ui *ui, home *sandbox.Home, name string, do func() (int, error)) (int, error) {
	st, err := home.Inspect(name)
	if err != nil {
		return do()
	}
	tail := audit.NewTail(st.Audit)
	defer func() { _ = tail.Close() }() // it was only read
	if tail.SkipToEnd() != nil {
		return do()
	}
	code, err := do()
	var denials audit.Denials
	if tail.Next(func(_ []byte, ev *audit.Event) error { denials.Emit(*ev); return nil }) == nil {
		s := denials.Summary()
		cfg := sandbox.Config{Name: name, PolicyFile: st.PolicyFile}
		if p, err := home.Policy(name); err == nil {
			cfg.Floor = p.Floor
		}
		noteDenials(ui, &s, &cfg)
	}
	return code, err
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
		what := destination(&shown[i])
		if shown[i].Method != "" {
			what = quoted(shown[i].Method, plainHost(shown[i].Method)) + " " + what + quoted(shorten(shown[i].Path), plainPath(shown[i].Path))
		}
		parts = append(parts, what+" ("+because(&shown[i])+times(&shown[i])+")")
	}
	switch more := s.Apart - len(shown); {
	case more == 1 && s.Others == 0:
		parts = append(parts, "and 1 more destination")
	case more > 0:
		parts = append(parts, fmt.Sprintf("and %d more destinations", more))
	case s.Others > 0:
		parts = append(parts, "others")
	}
	return strings.Join(head, ", ") + ": " + strings.Join(parts, ", ")
}

// because is a reason as a sentence, with the denying rule or the one that comes closest.
func because(d *audit.Denial) string {
	text := strings.ReplaceAll(d.Reason, "_", " ")
	switch {
	case d.Rule == "":
	case d.Reason == egress.ReasonDenyRule.String():
		text += " " + strconv.Quote(shorten(d.Rule))
	case d.Method != "":
		text += " by the rule " + strconv.Quote(shorten(d.Rule))
	}
	return text
}

// times says how often, if it was more than once; not for names, which most clients ask for twice, for IPv4 and for IPv6
// addresses.
func times(d *audit.Denial) string {
	if d.Count < 2 || d.DNS {
		return ""
	}
	return fmt.Sprintf(", %d times", d.Count)
}

// quoted shows what a guest chose: in quotes unless it is plain.
func quoted(s string, plain bool) string {
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// plainPath reports whether a path holds nothing that could be mistaken for msb's own text.
func plainPath(s string) bool {
	return s != "" && s[0] == '/' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~%/") == ""
}

// destination is where the guest wanted to connect. A name that could be mistaken for other text is quoted.
func destination(d *audit.Denial) string {
	host := quoted(shorten(d.Host), plainHost(d.Host))
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

// remedies say how to allow the named destinations: by flags if possible, otherwise in another way.
func remedies(s *audit.DenialSummary, cfg *sandbox.Config) []string {
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
		if w := cmp.Or(ruleRemedy(d), otherRemedy[d.Reason]); w != "" && !slices.Contains(words, w) {
			words = append(words, w)
		}
	}
	if len(flags) > 0 {
		text := "allow with "
		switch { // the flags of one that stays were read when it was made
		case cfg.Name != "" && cfg.PolicyFile != "":
			text = "allow with a rule in " + shellQuoted([]string{cfg.PolicyFile}) + " that means the same as "
		case cfg.Name != "":
			text = "allow by making it again with "
		}
		text += strings.Join(flags, " ")
		if guessed {
			text += " (instead of 443 the port that it needs: 80 for http)"
		}
		words = append([]string{text}, words...)
	}
	return words
}

// ruleRemedy names the rule whose methods or paths refuse a request, and what to add to it.
func ruleRemedy(d *audit.Denial) string {
	switch {
	case d.Rule == "" || !plainHost(d.Method) || !plainPath(d.Path): // a guest asks for "/**" too
	case d.Reason == egress.ReasonMethod.String():
		return fmt.Sprintf("add %s to the methods of the rule %s", strconv.Quote(d.Method), strconv.Quote(shorten(d.Rule)))
	case d.Reason == egress.ReasonPath.String():
		return fmt.Sprintf("add %s to the paths of the rule %s", strconv.Quote(shorten(d.Path)), strconv.Quote(shorten(d.Rule)))
	}
	return ""
}

// otherRemedy says, by reason, how to allow a destination for which --allow isn't enough. For other reasons there is no
// remedy but to change the policy.
var otherRemedy = map[string]string{
	egress.ReasonMetadata.String():     "a metadata address hands out this machine's own credentials: only a private rule for exactly that address opens it",
	egress.ReasonMetadataName.String(): "that name leads to this machine's own credentials, and stays closed",
	egress.ReasonHostAddress.String():  "this machine's own services are reached by a name: --add-host NAME=ADDRESS:PORT, or the policy's [hosts]",
	egress.ReasonLocalName.String():    "a name inside of a network needs --add-host NAME=ADDRESS, or a line in the policy's [hosts]",
	egress.ReasonRebinding.String():    "the name has private addresses: within in its rule names the ranges that it may have",
	egress.ReasonNotPinned.String():    "the guest has to resolve the name itself",
	egress.ReasonMethod.String():       "the rule's methods are in the policy",
	egress.ReasonPath.String():         "the rule's paths are in the policy",
	egress.ReasonDenyRule.String():     "it is open once the policy's deny rule, or --deny, is taken back",
	egress.ReasonLimit.String():        "bounds are in the policy's [limits]",
}

// allowFlag is the argument of --allow for a destination; "" if there is none.
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
