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
	d.Emit(Event{Kind: LinkDrop, Action: "deny", Count: 5})
	d.Emit(Event{Kind: PolicyReload, Action: "deny"})

	s := d.Summary()
	if s.Denied != 205 || s.WouldDeny != 2 || s.Others != 200 || s.Empty() {
		t.Errorf("%+v", s)
	}
	want := "10.0.0.1:80/tcp special_address 3; evil.example:0/ no_rule 2; a.example:443/tcp no_rule 1; "
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

// A name that the policy allows and that doesn't resolve is no denial; one that resolves later is no news.
func TestI11_UnresolvedNamesAreToldAndBounded(t *testing.T) {
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
