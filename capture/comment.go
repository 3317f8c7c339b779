package capture

import (
	"strconv"
	"strings"
)

// The kinds of verdicts.
const (
	KindFlow    = "flow"
	KindName    = "dns"
	KindRequest = "http"
	KindPort    = "port"
)

// Verdict is what a comment says about a flow, a DNS question or a request. Strings are the audit log's.
type Verdict struct {
	// Kind is KindFlow, KindName or KindRequest; KindPort of a connection to a published port.
	Kind string
	// Flow is the flow's number in the audit log; 0 for none.
	Flow   uint64
	Action string
	// WouldDeny marks what report mode let through.
	WouldDeny    bool
	Rule, Reason string
	Name         string
	// To is where a flow leads whose packets go to the gateway's own proxy, "93.184.215.14:443"; what was
	// asked for if that is a name without an address.
	To string
	// Scheme, Method and Path are a request's: Scheme is "http" or "https", Path has no query. Name is its
	// host.
	Scheme, Method, Path string
	// Overrides are the methods that its headers ask for, separated by commas.
	Overrides string
	// Client is who connected to a published port, "192.168.1.7:50123", or PeerPrefix and the name of another sandbox.
	Client string
	// Message is the sentence for people; it goes to the comment's end.
	Message string
}

// PeerPrefix begins a Client that is another sandbox.
const PeerPrefix = "sandbox:"

// commentPrefix tells the gateway's comments from a person's own.
const commentPrefix = "msb "

// String is the comment: "msb flow=7 action=deny reason=no_rule name=x.example: " and the message.
func (v Verdict) String() string {
	b := []byte(commentPrefix + v.Kind + "=" + strconv.FormatUint(v.Flow, 10))
	for _, f := range [...]struct{ key, value string }{
		{"action", v.Action}, {"rule", v.Rule}, {"reason", v.Reason}, {"name", v.Name}, {"to", v.To},
		{"scheme", v.Scheme}, {"method", v.Method}, {"path", v.Path},
		{"overrides", v.Overrides}, {"client", v.Client},
	} {
		if f.value != "" {
			b = append(append(append(b, ' '), f.key...), '=')
			b = append(b, quoted(f.value)...)
		}
	}
	if v.WouldDeny {
		b = append(b, " would_deny=true"...)
	}
	if v.Message != "" {
		b = append(append(b, ": "...), v.Message...)
	}
	return string(b)
}

// Whole reports whether the comment has room for all but the end of the message, so that ParseVerdict reads it.
func (v Verdict) Whole() bool {
	v.Message = ""
	return len(v.String()) <= maxComment
}

// quoted writes a value so that ParseVerdict finds its end.
func quoted(s string) string {
	plain := strings.IndexFunc(s, func(r rune) bool {
		return r <= ' ' || r == '"' || r == ':' || r == '\\' || r > '~'
	}) < 0
	if plain {
		return s
	}
	return strconv.Quote(s)
}

// ParseVerdict reads what Verdict.String wrote. It reports false for every other text.
func ParseVerdict(comment string) (Verdict, bool) {
	var v Verdict
	rest, ok := strings.CutPrefix(comment, commentPrefix)
	if !ok {
		return v, false
	}
	for first := true; rest != ""; first = false {
		if message, ok := strings.CutPrefix(rest, ": "); ok {
			v.Message = message
			break
		}
		key, after, ok := strings.Cut(strings.TrimPrefix(rest, " "), "=")
		if !ok {
			return Verdict{}, false
		}
		var value string
		if value, rest, ok = unquoted(after); !ok || !v.set(key, value, first) {
			return Verdict{}, false
		}
	}
	return v, v.Kind != ""
}

// unquoted splits a value from what follows it.
func unquoted(s string) (value, rest string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		prefix, err := strconv.QuotedPrefix(s)
		if err != nil {
			return "", "", false
		}
		value, err = strconv.Unquote(prefix)
		return value, s[len(prefix):], err == nil
	}
	end := strings.IndexAny(s, " :")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:], true
}

func (v *Verdict) set(key, value string, first bool) bool {
	if first {
		n, err := strconv.ParseUint(value, 10, 64)
		v.Kind, v.Flow = key, n
		return err == nil && (key == KindFlow || key == KindName || key == KindRequest || key == KindPort)
	}
	switch key {
	case "action":
		v.Action = value
	case "rule":
		v.Rule = value
	case "reason":
		v.Reason = value
	case "name":
		v.Name = value
	case "to":
		v.To = value
	case "scheme":
		v.Scheme = value
	case "method":
		v.Method = value
	case "path":
		v.Path = value
	case "overrides":
		v.Overrides = value
	case "client":
		v.Client = value
	case "would_deny":
		v.WouldDeny = value == "true"
	default:
		return key != "" // a later version's
	}
	return true
}

// lostPrefix begins the comment that says how many verdicts on a flow were lost.
const lostPrefix = "msb: verdicts lost: "

// LostVerdicts is a comment that says that n verdicts on this flow are not in the capture: more of them waited
// for one packet than are kept.
func LostVerdicts(n int) string { return lostPrefix + strconv.Itoa(n) }

// ParseLostVerdicts reads what LostVerdicts wrote; 0 for every other text.
func ParseLostVerdicts(comment string) int {
	text, _ := strings.CutPrefix(comment, lostPrefix)
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || len(text) == len(comment) {
		return 0
	}
	return n
}
