package audit

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func TestDenialsAreSummedUp(t *testing.T) {
	var d Denials
	dst := netip.MustParseAddr("10.0.0.1")
	for range 3 {
		d.Emit(Event{Kind: FlowOpen, Action: "deny", Proto: "tcp", Dst: dst, Port: 80, Reason: "special_address"})
	}
	d.Emit(Event{Kind: DNSQuery, Action: "deny", Proto: "udp", Dst: dst, Port: 53, Reason: "no_rule", DNS: &DNSDetail{Name: "evil.example", Type: "A"}})
	d.Emit(Event{Kind: DNSQuery, Action: "deny", Proto: "udp", Dst: dst, Port: 53, Reason: "no_rule", DNS: &DNSDetail{Name: "evil.example", Type: "AAAA"}})
	d.Emit(Event{Kind: HTTPRequest, Action: "allow", WouldDeny: true, Proto: "tcp", Dst: dst, Port: 443, Host: "a.example", Reason: "no_rule"})
	d.Emit(Event{Kind: DNSQuery, Action: "allow", WouldDeny: true, Reason: "no_rule", DNS: &DNSDetail{Name: "a.example"}})
	d.Emit(Event{Kind: FlowOpen, Action: "deny", Reason: "no_rule", Proto: "tcp", Count: 200}) // of a flood
	for _, kind := range []Kind{FlowOpen, DNSQuery, HTTPRequest, FlowClose} {
		d.Emit(Event{Kind: kind, Action: "allow", Host: "fine.example"})
	}
	d.Emit(Event{Kind: DNSQuery, Action: "deny", Reason: "no_rule", DNS: &DNSDetail{Name: "a.example"}}) // report mode has ended
	d.Emit(Event{Kind: LinkDrop, Action: "deny", Count: 5})
	d.Emit(Event{Kind: PolicyReload, Action: "deny"})

	s := d.Summary()
	if s.Denied != 205 || s.WouldDeny != 2 || s.Others != 200 || s.Empty() {
		t.Errorf("%+v", s)
	}
	want := "10.0.0.1:80/tcp special_address 3; evil.example:0/ no_rule 1; a.example:443/tcp no_rule 1; "
	got := ""
	for _, one := range s.List {
		got += fmt.Sprintf("%s:%d/%s %s %d; ", one.Host, one.Port, one.Proto, one.Reason, one.Count)
	}
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var none Denials
	if s := none.Summary(); !s.Empty() || len(s.List) > 0 {
		t.Errorf("of nothing: %+v", s)
	}
}

// TestDenialsCountARebindingOnce: an answer that is refused as a whole has an event of its question beside its own, one
// of which an address was taken out has only its own.
func TestDenialsCountARebindingOnce(t *testing.T) {
	var d Denials
	for _, outcome := range []string{"REFUSED", "NOERROR"} {
		action := map[string]string{"REFUSED": "deny", "NOERROR": "allow"}[outcome]
		detail := &DNSDetail{Name: outcome + ".example", Type: "A", Outcome: outcome, Removed: []string{"10.0.0.1"}}
		d.Emit(Event{Kind: DNSRebinding, Action: "deny", Reason: "rebinding", DNS: detail})
		d.Emit(Event{Kind: DNSQuery, Action: action, Reason: "rebinding", DNS: detail})
	}
	s := d.Summary()
	if s.Denied != 2 || len(s.List) != 2 || s.List[0].Count != 1 || s.List[1].Count != 1 {
		t.Errorf("%+v", s)
	}
}

func TestI11_DenialsAreBounded(t *testing.T) {
	var d Denials
	const many = 10000
	for i := range many {
		d.Emit(Event{Kind: DNSQuery, Action: "deny", Reason: "no_rule", DNS: &DNSDetail{Name: fmt.Sprint(i) + strings.Repeat("x", 1<<12)}})
	}
	s := d.Summary()
	counted := s.Others
	for _, one := range s.List {
		counted += one.Count
		if len(one.Host) > maxDenied+len(cutMark) {
			t.Errorf("a host of %d bytes", len(one.Host))
		}
	}
	if len(d.all) > maxDenials || len(s.List) > maxListed || s.Denied != many || counted != many {
		t.Errorf("%d kept, %d listed, %d denied of which %d are accounted for; want %d", len(d.all), len(s.List), s.Denied, counted, many)
	}
}

// TestDenialsNameTheDestination: the best name of each event, its request where that was refused, and each
// destination once.
func TestDenialsNameTheDestination(t *testing.T) {
	t.Parallel()
	dst := netip.MustParseAddr("192.0.2.1")
	for name, c := range map[string]struct {
		events []Event
		want   string
	}{
		"host before SNI":     {[]Event{{Kind: HTTPRequest, Host: "h.example", SNI: "s.example", Names: []string{"n.example"}, Dst: dst}}, "h.example:0    x1"},
		"SNI before names":    {[]Event{{Kind: FlowOpen, SNI: "s.example", Names: []string{"n.example"}, Dst: dst, Port: 443}}, "s.example:443    x1"},
		"the first name":      {[]Event{{Kind: FlowOpen, Names: []string{"n.example", "o.example"}, Dst: dst}}, "n.example:0    x1"},
		"the address":         {[]Event{{Kind: Limit, Dst: dst, Port: 1, Proto: "udp", Rule: "r"}}, "192.0.2.1:1 r   x1"},
		"a refused method":    {[]Event{{Kind: HTTPRequest, Host: "h.example", Reason: "method_not_allowed", Method: "PUT", Path: "/p"}}, "h.example:0  PUT /p x1"},
		"a refused path":      {[]Event{{Kind: HTTPRequest, Host: "h.example", Reason: "path_not_allowed", Method: "GET", Path: "/p"}}, "h.example:0  GET /p x1"},
		"no rule for it":      {[]Event{{Kind: HTTPRequest, Host: "h.example", Reason: "no_rule", Method: "GET", Path: "/p"}}, "h.example:0    x1"},
		"floods have a count": {[]Event{{Kind: FlowOpen, Dst: dst}, {Kind: FlowOpen, Dst: dst, Count: 3}, {Kind: FlowOpen, Dst: dst, Count: 1}}, "192.0.2.1:0    x5"},
		"another port":        {[]Event{{Kind: FlowOpen, Dst: dst, Port: 1}, {Kind: FlowOpen, Dst: dst, Port: 2}}, "192.0.2.1:1    x1; 192.0.2.1:2    x1"},
		"a question, then its flow": {[]Event{
			{Kind: DNSQuery, DNS: &DNSDetail{Name: "a.example"}}, {Kind: DNSQuery, DNS: &DNSDetail{Name: "b.example"}}, {Kind: FlowOpen, SNI: "a.example", Port: 443},
		}, "b.example:0    x1; a.example:443    x1"},
		"a question of its port":   {[]Event{{Kind: DNSQuery, DNS: &DNSDetail{Name: "a.example"}, Port: 53, Proto: "udp"}}, "a.example:0    x1"},
		"a violation":              {[]Event{{Kind: SecretViolation, Host: "a.example"}}, ""},
		"an event without a place": {[]Event{{Kind: FlowOpen}}, ""},
	} {
		var d Denials
		for _, ev := range c.events {
			ev.Action = "deny"
			d.Emit(ev)
		}
		var got []string
		s := d.Summary()
		for _, one := range s.List {
			got = append(got, fmt.Sprintf("%s:%d %s %s %s x%d", one.Host, one.Port, one.Rule, one.Method, one.Path, one.Count))
		}
		if got := strings.Join(got, "; "); got != c.want || s.Apart != len(s.List) {
			t.Errorf("%s: got %q of %d, want %q", name, got, s.Apart, c.want)
		}
	}
}

// TestI11_DenialsAtTheirBounds fills the summary to its bounds: 64 destinations are kept apart, 8 are listed.
func TestI11_DenialsAtTheirBounds(t *testing.T) {
	t.Parallel()
	for _, n := range []int{maxListed, maxListed + 1, maxDenials, maxDenials + 1} {
		var d Denials
		for range 2 {
			for i := range n {
				d.Emit(Event{Kind: FlowOpen, Action: "deny", Host: "a.example", Port: uint16(i + 1)})
			}
		}
		s := d.Summary()
		if s.Apart != min(n, maxDenials) || len(s.List) != min(n, maxListed) || counted(&s) != s.Denied || s.Denied != 2*uint64(n) {
			t.Errorf("%d destinations: %d apart, %d listed, %d others of %d", n, s.Apart, len(s.List), s.Others, s.Denied)
		}
	}
}

// counted is what the parts of a summary add up to.
func counted(s *DenialSummary) uint64 {
	n := s.Others
	for i := range s.List {
		n += s.List[i].Count
	}
	return n
}

// TestNewestDenialsAddUp: what was denied last is in the list, whatever came before it.
func TestNewestDenialsAddUp(t *testing.T) {
	t.Parallel()
	var d Denials
	ask := func(name string) {
		for range 2 { // for its IPv4 and its IPv6 addresses
			d.Emit(Event{Kind: DNSQuery, Action: "deny", Reason: "no_rule", DNS: &DNSDetail{Name: name}})
		}
	}
	ask("first.example")
	d.Emit(Event{Kind: HTTPRequest, Action: "allow", WouldDeny: true, Host: "report.example", Count: 5})
	d.Emit(Event{Kind: FlowOpen, Action: "deny", Count: 7})
	for i := range 2 * maxDenials {
		ask(fmt.Sprintf("%d.example", i))
		ask("kept.example")
	}
	ask("last.example")
	d.Emit(Event{Kind: FlowOpen, Action: "deny", Host: "last.example", Port: 443})
	s := d.Newest()
	if counted(&s) != s.Denied+s.WouldDeny || s.WouldDeny != 5 || s.Denied != 1+7+2*maxDenials+1+1 || s.Apart != len(s.List) || len(s.List) != maxDenials-1 {
		t.Errorf("%d denied, %d let through, %d counted, %d of %d listed", s.Denied, s.WouldDeny, counted(&s), len(s.List), s.Apart)
	}
	if a, b := s.List[0], s.List[1]; a.Host != "last.example" || a.Port != 443 || b.Host != "kept.example" || b.Count != 1 {
		t.Errorf("the newest: %+v, %+v", a, b)
	}
	if s := d.Summary(); s.Denied != 1+7+2*maxDenials+1+2 || len(s.List) != maxListed {
		t.Errorf("the summary: %d denied, %d listed", s.Denied, len(s.List))
	}
}

// TestUnresolvedNamesAreUpstreamFailures: what msb answers itself, other types and reverse names are not listed.
func TestUnresolvedNamesAreUpstreamFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		q    DNSDetail
		want string
	}{
		{DNSDetail{Name: "a.example", Type: "A", Outcome: "NXDOMAIN", Upstream: "system"}, "[{a.example }]"},
		{DNSDetail{Name: "a.example", Type: "AAAA", Outcome: "SERVFAIL"}, "[{a.example why}]"},
		{DNSDetail{Name: "a.example", Type: "A", Outcome: "NXDOMAIN"}, "[]"},
		{DNSDetail{Name: "a.example", Type: "MX", Outcome: "NXDOMAIN", Upstream: "system"}, "[]"},
		{DNSDetail{Name: "1.2.0.192.in-addr.ARPA.", Type: "A", Outcome: "NXDOMAIN", Upstream: "system"}, "[]"},
		{DNSDetail{Name: "a.example", Type: "A", Outcome: "NOERROR", Upstream: "system"}, "[]"},
		{DNSDetail{Name: "a.example", Type: "A", Outcome: "REFUSED", Upstream: "system"}, "[]"},
	} {
		var d Denials
		for range 2 {
			d.Emit(Event{Kind: DNSQuery, Action: "allow", DNS: &c.q, Message: "why"})
		}
		if s := d.Summary(); fmt.Sprint(s.Unresolved) != c.want || s.Empty() != (c.want == "[]") {
			t.Errorf("%+v: %v, want %s", c.q, s.Unresolved, c.want)
		}
	}
	for _, ev := range []Event{{WouldDeny: true, Kind: FlowOpen}, {Action: "deny", Kind: Limit}} {
		var d Denials
		d.Emit(ev)
		if s := d.Summary(); s.Empty() || s.Denied+s.WouldDeny != 1 || s.Others != 1 || ev.WouldDeny != (s.WouldDeny == 1) {
			t.Errorf("%+v: %+v", ev, s)
		}
	}
}

// A name that the policy allows and that doesn't resolve is no denial; one that resolves later drops off the list.
func TestI11_UnresolvedNamesAreListedAndBounded(t *testing.T) {
	var d Denials
	ask := func(name, typ, outcome string, answers ...string) {
		d.Emit(Event{Kind: DNSQuery, Action: "allow", DNS: &DNSDetail{Name: name, Type: typ, Outcome: outcome, Upstream: "system", Answers: answers}})
	}
	ask("back.example", "A", "SERVFAIL")
	ask("typo.example", "AAAA", "NXDOMAIN")
	ask("_http._tcp.deb.example", "SRV", "NXDOMAIN")
	ask("back.example", "AAAA", "NOERROR")
	if s := d.Summary(); len(s.Unresolved) != 2 || s.Empty() || s.Denied != 0 {
		t.Errorf("%+v", s)
	}
	ask("back.example", "A", "NOERROR", "192.0.2.1")
	if s := d.Summary(); len(s.Unresolved) != 1 || s.Unresolved[0].Host != "typo.example" {
		t.Errorf("%+v", s)
	}
	for i := range 10000 {
		ask(fmt.Sprint(i)+strings.Repeat("x", 1<<12), "A", "NXDOMAIN")
	}
	s := d.Summary()
	for _, u := range s.Unresolved {
		if len(u.Host) > maxDenied+len(cutMark) {
			t.Errorf("a host of %d bytes", len(u.Host))
		}
	}
	if len(s.Unresolved) != maxListed {
		t.Errorf("%d names", len(s.Unresolved))
	}
}
