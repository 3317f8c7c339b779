package session

import (
	"net/netip"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
)

// TestI5_WhatTheKernelOwnsIsRefused has the kernel own an address at each place where a session judges.
func TestI5_WhatTheKernelOwnsIsRefused(t *testing.T) {
	t.Parallel()
	web := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(webAddr, port) }
	for name, try := range map[string]func(rules *Rules, owned func()) (Step, *Session){
		"at the first packet": func(rules *Rules, owned func()) (Step, *Session) {
			owned()
			s, step := Open(rules, known, egress.UDP, guestAddr, web(4433))
			return step, s
		},
		"after the first bytes": func(rules *Rules, owned func()) (Step, *Session) {
			s, _ := Open(rules, known, egress.TCP, guestAddr, web(443))
			owned()
			return s.Data([]byte(clientHello("web.example.com")), More), s
		},
		"while it is dialled": func(rules *Rules, owned func()) (Step, *Session) {
			s, _ := Open(rules, known, egress.UDP, guestAddr, web(4433))
			owned()
			return s.Rejudge(), s
		},
		"while it runs": func(rules *Rules, owned func()) (Step, *Session) {
			s, _ := Open(rules, known, egress.UDP, guestAddr, web(4433))
			s.Dialed(nil)
			owned()
			return s.Rejudge(), s
		},
		"for the proxy": func(rules *Rules, owned func()) (Step, *Session) {
			owned()
			s, step := Reopen(rules, known, known[webAddr][0], web(443), true)
			return step, s
		},
		"while the denial waits": func(rules *Rules, owned func()) (Step, *Session) {
			rules.Approval = func(*egress.Flow, egress.Verdict) time.Duration { return time.Hour }
			s, step := Open(rules, known, egress.UDP, guestAddr, web(9))
			if step.Action != Wait {
				t.Errorf("the denial doesn't wait: %v", step.Action)
			}
			owned()
			return s.Answer(true), s
		},
		"before the denial waits": func(rules *Rules, owned func()) (Step, *Session) {
			rules.Approval = func(*egress.Flow, egress.Verdict) time.Duration { return time.Hour }
			owned()
			s, step := Open(rules, known, egress.UDP, guestAddr, web(9))
			return step, s
		},
	} {
		for _, owns := range []bool{false, true} {
			rules, owned := rulesOf(t, webTLS+"[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"udp\"\nports = [4433]\n"), false
			rules.Owns = func(_ egress.Proto, dst netip.AddrPort) bool { return owned && dst.Addr() == webAddr }
			step, s := try(rules, func() { owned = owns })
			refused := step.Action == Reject || step.Action == Refuse || step.Action == End
			if refused != owns {
				t.Errorf("%s, owned %v: %v (%v)", name, owns, step.Action, s.Judged().Verdict)
			}
		}
	}
}
