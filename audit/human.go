package audit

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/msb-project/msb/internal/printable"
)

// maxHuman is how many bytes of one field the human form shows. Messages end with their remedy, and are shown whole.
const maxHuman = 200

// FormatHuman returns ev as one line for people, without its end:
//
//	12:00:01 deny    tcp 93.184.215.14:443 www.example.com  no_rule: …
//
// Whatever a guest could choose is made harmless for a terminal (Printable).
func FormatHuman(ev Event) string {
	var b strings.Builder
	b.WriteString(ev.Time.Format("15:04:05 "))
	fmt.Fprintf(&b, "%-8s", action(ev))
	switch ev.Kind {
	case FlowOpen, FlowClose, HTTPRequest:
		humanFlow(&b, ev)
	case PortFlow:
		client := ev.Client.String()
		if ev.Peer != "" {
			client = "sandbox " + ev.Peer
		}
		put(&b, string(ev.Kind), client, "to port", strconv.Itoa(int(ev.Port)),
			fmt.Sprintf("up %d down %d in %v", ev.BytesUp, ev.BytesDown, ev.Duration.Round(time.Millisecond)))
	case SSHForward:
		put(&b, string(ev.Kind))
		if ev.Port > 0 {
			put(&b, "port", strconv.Itoa(int(ev.Port)))
		}
	case DNSQuery, DNSRebinding:
		humanDNS(&b, ev)
	case SecretSwap, SecretViolation:
		put(&b, string(ev.Kind), ev.Secret, ev.Host, ev.Place)
	case SandboxDie, ExecCreate, ExecStart, ExecDie, ChildRequest:
		humanCommand(&b, ev)
	case AccessRequest, AccessAnswer, AccessEnd:
		put(&b, string(ev.Kind), net.JoinHostPort(ev.Host, strconv.Itoa(int(ev.Port))), ev.Method, ev.By)
	case PolicyReload, Limit, LinkDrop, SandboxCreate, SandboxStart, SandboxStop, SandboxRemove, SandboxRestart, SandboxPause, SandboxResume, SandboxStopping, AuditDropped, AuditRotated:
		put(&b, string(ev.Kind), ev.Proto)
		if ev.Count > 0 {
			put(&b, strconv.FormatUint(ev.Count, 10))
		}
	default:
		put(&b, string(ev.Kind))
	}
	if ev.Reason != "" && ev.Kind != FlowClose {
		put(&b, " "+ev.Reason)
	}
	if ev.Rule != "" && ev.Kind != FlowClose {
		put(&b, "["+ev.Rule+"]")
	}
	if ev.Message != "" {
		b.WriteString(Printable(strings.ReplaceAll(cut(ev.Message, maxMessage), "\n", "; ")))
	}
	return strings.TrimRight(b.String(), " ")
}

// action is the word in front.
func action(ev Event) string {
	switch {
	case ev.WouldDeny:
		return "would"
	case ev.Kind == FlowClose:
		return "close"
	case ev.Action != "":
		return Printable(cut(ev.Action, maxHuman))
	}
	return "-"
}

func humanCommand(b *strings.Builder, ev Event) {
	put(b, string(ev.Kind), ev.Verb, ev.Child, ev.Job, ev.Program)
	if ev.ExitCode != nil {
		put(b, "exit code", strconv.Itoa(*ev.ExitCode))
	}
}

func humanFlow(b *strings.Builder, ev Event) {
	put(b, ev.Proto, address(ev.Dst, ev.Port))
	switch {
	case ev.Host != "":
		put(b, ev.Host)
	case ev.SNI != "":
		put(b, ev.SNI)
	default:
		put(b, strings.Join(ev.Names, ","))
	}
	put(b, ev.Method, ev.Path)
	if ev.Status != 0 {
		put(b, strconv.Itoa(ev.Status))
	}
	if ev.Kind == FlowClose {
		put(b, fmt.Sprintf("up %d down %d in %v", ev.BytesUp, ev.BytesDown, ev.Duration.Round(time.Millisecond)))
	}
}

func humanDNS(b *strings.Builder, ev Event) {
	put(b, "dns")
	if d := ev.DNS; d != nil {
		put(b, d.Type, d.Name, d.Outcome, strings.Join(d.Answers, ","))
		if len(d.Removed) > 0 {
			put(b, "removed "+strings.Join(d.Removed, ","))
		}
	}
}

func address(a netip.Addr, port uint16) string {
	switch {
	case !a.IsValid():
		return ""
	case port == 0:
		return a.String()
	}
	return netip.AddrPortFrom(a, port).String()
}

// put writes the fields that aren't empty, each made printable, with a space
// behind each.
func put(b *strings.Builder, fields ...string) {
	for _, f := range fields {
		if f != "" {
			b.WriteString(Printable(cut(f, maxHuman)))
			b.WriteByte(' ')
		}
	}
}

// Printable returns s on one line and with nothing that a terminal would act
// on: escape sequences (titles, OSC 52, hyperlinks), newlines, text direction
// and invalid UTF-8 are shown as Go escapes, such as \x1b and \u202e.
func Printable(s string) string {
	clean := true
	for _, r := range s {
		if printable.Obeyed(r) || r == utf8.RuneError {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !printable.Obeyed(r):
			b.WriteString(s[i : i+n])
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}
