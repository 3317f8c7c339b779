package audit

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/msb-project/msb/internal/printable"
)

// hostile is what a guest may put into names, paths and methods.
var hostile = []string{
	"\x1b]52;c;cm0gLXJmIH4=\x07",        // writes the clipboard
	"\x1b]0;root@host\x07",              // sets the title
	"\x1b]8;;http://evil.example\x1b\\", // a hyperlink
	"\x1b[2J\x1b[1;1H",                  // clears the screen
	"a\nb {\"kind\":\"flow.open\"}",     // a line of its own
	"a\r\x08\x7fb",                      // overwrites
	"\u009b31mred",                      // C1 CSI
	"\u202egpj.exe",                     // right-to-left override
	"zero\u200bwidth\ufeff",             // invisible
	"\xff\xfe\xc3(",                     // invalid UTF-8
	"\xe2\x80",                          // cut UTF-8
	"line\u2028separator",
	strings.Repeat("A", 1<<20),
}

func harmless(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) || printable.Obeyed(r) {
			return false
		}
	}
	return true
}

// everywhere puts s into each field that a guest could influence.
func everywhere(s string) []Event {
	base := Event{Time: noon, Proto: s, Dst: netip.MustParseAddr("192.0.2.1"), Port: 443, Names: []string{s}, SNI: s, Host: s, Method: s, Path: s, Action: s, Rule: s, Reason: s, Class: s, Message: s, Secret: s, Place: s, Sandbox: s, Labels: map[string]string{"pod": s, s: "x"},
		DNS: &DNSDetail{Name: s, Type: s, Outcome: s, Answers: []string{s}, Removed: []string{s}, Upstream: s}}
	var out []Event
	for _, k := range []Kind{FlowOpen, FlowClose, DNSQuery, DNSRebinding, HTTPRequest, SecretSwap, SecretViolation, PolicyReload, Limit, LinkDrop, SandboxStart, AuditDropped, Kind(s)} {
		ev := base
		ev.Kind = k
		out = append(out, ev)
	}
	return out
}

func TestHumanFormIsTerminalSafe(t *testing.T) {
	for _, s := range hostile {
		for _, ev := range everywhere(s) {
			line := FormatHuman(ev)
			if !harmless(line) {
				t.Errorf("kind %.40q: terminal would act on %.200q", ev.Kind, line)
			}
			if len(line) > 8192 {
				t.Errorf("kind %.40q: line of %d bytes", ev.Kind, len(line))
			}
		}
	}
}

// oneLine is ev's line without its end.
func oneLine(t *testing.T, ev Event) ([]byte, error) {
	t.Helper()
	line, err := newEncoder().appendLine(nil, ev)
	line, ok := bytes.CutSuffix(line, []byte("\n"))
	if !ok {
		t.Errorf("a line without an end: %q", line)
	}
	return line, err
}

func TestJSONLineIsOneHarmlessLine(t *testing.T) {
	for _, s := range hostile {
		for _, ev := range everywhere(s) {
			ev = bounded(ev)
			line, err := oneLine(t, ev)
			if err != nil {
				t.Fatal(err)
			}
			if !harmless(string(line)) || !json.Valid(line) {
				t.Errorf("line %.200q", line)
			}
			if len(line) > 20<<10 {
				t.Errorf("line of %d bytes from an event of long strings", len(line))
			}
		}
	}
}

func TestI8_QueryStringsNeverReachTheLog(t *testing.T) {
	var buf bytes.Buffer
	l := NewLog(&buf, Options{})
	l.Emit(Event{Kind: HTTPRequest, Path: "/login?token=hunter2"})
	l.Emit(Event{Kind: HTTPRequest, Path: "/login#token=hunter2"})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(buf.String(), "hunter2") {
		t.Errorf("the query is in the log: %s", buf.String())
	}
	if n := strings.Count(buf.String(), `"/login"`); n != 2 {
		t.Errorf("%d paths in the log, want 2: %s", n, buf.String())
	}
}

func TestPrintableKeepsOrdinaryText(t *testing.T) {
	for _, s := range []string{"", "www.example.com", "bücher.example", "日本語", "a b\u00a0c", "👍"} {
		if got := Printable(s); got != s {
			t.Errorf("Printable(%q) = %q", s, got)
		}
	}
	if got := Printable("\x1b]0;x\a\u202e\xff"); got != `\x1b]0;x\x07\u202e\xff` {
		t.Errorf("got %q", got)
	}
}

func TestFormatHumanReadsWell(t *testing.T) {
	ev := fullEvent()
	for want, change := range map[string]func(*Event){
		"12:00:00 would   tcp 140.82.112.5:443 api.github.com GET /repos/acme 200  rule [github] an allow rule covers it": func(*Event) {},
		"12:00:00 close   tcp 140.82.112.5:443 api.github.com up 10 down 20 in 1.5s": func(e *Event) {
			*e = Event{Time: noon, Kind: FlowClose, Proto: "tcp", Dst: e.Dst, Port: 443, SNI: "api.github.com", BytesUp: 10, BytesDown: 20, Duration: 1500 * time.Millisecond}
		},
		"12:00:00 deny    dns A evil.example REFUSED  no_rule no allow rule covers it": func(e *Event) {
			*e = Event{Time: noon, Kind: DNSQuery, Action: "deny", Reason: "no_rule", Message: "no allow rule covers it", DNS: &DNSDetail{Name: "evil.example", Type: "A", Outcome: "REFUSED"}}
		},
		"12:00:00 allow   dns A a.example NOERROR 192.0.2.1,192.0.2.2 removed 10.0.0.1": func(e *Event) {
			*e = Event{Time: noon, Kind: DNSQuery, Action: "allow", DNS: &DNSDetail{Name: "a.example", Type: "A", Outcome: "NOERROR", Answers: []string{"192.0.2.1", "192.0.2.2"}, Removed: []string{"10.0.0.1"}}}
		},
		"12:00:00 deny    dns  rebinding": func(e *Event) { *e = Event{Time: noon, Kind: DNSRebinding, Action: "deny", Reason: "rebinding"} },
		"12:00:00 deny    icmp 192.0.2.1 a.example,b.example  no_rule [x] first; second": func(e *Event) {
			*e = Event{Time: noon, Kind: FlowOpen, Action: "deny", Proto: "icmp", Dst: netip.MustParseAddr("192.0.2.1"), Names: []string{"a.example", "b.example"}, Reason: "no_rule", Rule: "x", Message: "first\nsecond"}
		},
		"12:00:00 close   tcp up 0 down 0 in 0s": func(e *Event) {
			*e = Event{Time: noon, Kind: FlowClose, Action: "allow", Proto: "tcp", Reason: "rule", Rule: "x"}
		},
		"12:00:00 deny    limit tcp 7  limit tcp_connections": func(e *Event) {
			*e = Event{Time: noon, Kind: Limit, Action: "deny", Proto: "tcp", Count: 7, Reason: "limit", Message: "tcp_connections"}
		},
		"12:00:00 allow   port.flow 127.0.0.1:50000 to port 80 up 1 down 2 in 3ms": func(e *Event) {
			*e = Event{Time: noon, Kind: PortFlow, Action: "allow", Proto: "tcp", Client: e.Client, Port: 80, BytesUp: 1, BytesDown: 2, Duration: 3 * time.Millisecond}
		},
		"12:00:00 deny    port.flow sandbox web to port 5432 up 0 down 0 in 0s  no_rule": func(e *Event) {
			*e = Event{Time: noon, Kind: PortFlow, Action: "deny", Proto: "tcp", Peer: "web", Port: 5432, Reason: "no_rule"}
		},
		"12:00:00 -       policy.reload": func(e *Event) { *e = Event{Time: noon, Kind: PolicyReload} },
		"12:00:00 -       new.kind":      func(e *Event) { *e = Event{Time: noon, Kind: "new.kind", Count: 3, Host: "a.example"} },
		"12:00:00 deny    secret.violation TOKEN a.example body": func(e *Event) {
			*e = Event{Time: noon, Kind: SecretViolation, Action: "deny", Secret: "TOKEN", Host: "a.example", Place: "body"}
		},
		"12:00:00 would   secret.swap TOKEN": func(e *Event) {
			*e = Event{Time: noon, Kind: SecretSwap, Action: "allow", WouldDeny: true, Secret: "TOKEN"}
		},
	} {
		got := ev
		change(&got)
		if line := FormatHuman(got); line != want {
			t.Errorf("got  %q\nwant %q", line, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range hostile[:len(hostile)-1] {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := Printable(s); !harmless(got) {
			t.Errorf("Printable(%q) = %q", s, got)
		}
		ev := bounded(Event{Path: s, SNI: s})
		if line, err := oneLine(t, ev); err != nil || !harmless(string(line)) || !json.Valid(line) {
			t.Errorf("line %q, %v", line, err)
		}
	})
}
