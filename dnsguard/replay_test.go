package dnsguard

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/policies"
)

// TestI16_ReviewsFilterAnswersLikeGuards feeds answers of a capture, good and odd, and asks for what they left.
func TestI16_ReviewsFilterAnswersLikeGuards(t *testing.T) {
	t.Parallel()
	mapped := policies.HostMapping{Name: name("in.example")}
	packet := func(change func(*dns.Msg), question string, qtype uint16, lines ...string) []byte {
		m := new(dns.Msg).SetQuestion(question, qtype)
		m.Response = true
		for _, line := range lines {
			rr, err := dns.NewRR(line)
			if err != nil {
				t.Fatal(err)
			}
			m.Answer = append(m.Answer, rr)
		}
		if change != nil {
			change(m)
		}
		return mustPack(t, m)
	}
	for what, c := range map[string]struct {
		answer []byte
		taken  bool
		allow  bool   // of the verdict on the answer
		seen   string // addresses, then those taken out
		ask    string
		got    string // addresses and the verdict of a later question
	}{
		"an address":      {packet(nil, "A.example.", dns.TypeA, "a.example. 300 IN A 93.184.216.34"), true, true, "[93.184.216.34] []", "a.example", "[93.184.216.34] rule"},
		"two families":    {packet(nil, "a.example.", dns.TypeAAAA, "a.example. 300 IN AAAA 2606:2800::1"), true, true, "[2606:2800::1] []", "a.example", "[2606:2800::1] rule"},
		"no such name":    {packet(nil, "a.example.", dns.TypeA), true, true, "[] []", "a.example", "[] rule"},
		"a private one":   {packet(nil, "a.example.", dns.TypeA, "a.example. 300 IN A 10.0.0.1"), true, false, "[] [10.0.0.1]", "a.example", "[] rule"},
		"one of two":      {packet(nil, "a.example.", dns.TypeA, "a.example. 300 IN A 10.0.0.1", "a.example. 300 IN A 93.184.216.34"), true, true, "[93.184.216.34] [10.0.0.1]", "a.example", "[93.184.216.34] rule"},
		"of a denied one": {packet(nil, "a.test.", dns.TypeA, "a.test. 300 IN A 93.184.216.34"), true, false, "[] []", "a.test", "[] no_rule"},
		"mapped":          {packet(nil, "in.example.", dns.TypeA, "in.example. 300 IN A 198.18.0.1"), true, true, "[198.18.0.1] []", "in.example", "[198.18.0.1] rule"},
		"mapped, public":  {packet(nil, "in.example.", dns.TypeA, "in.example. 300 IN A 93.184.216.34"), true, true, "[93.184.216.34] []", "in.example", "[] rule"},
		"mapped, other":   {packet(nil, "in.example.", dns.TypeA, "in.example. 300 IN CNAME a.example."), true, true, "[] []", "in.example", "[] rule"},
		"a question":      {packet(func(m *dns.Msg) { m.Response = false }, "a.example.", dns.TypeA, "a.example. 300 IN A 93.184.216.34"), false, false, "[] []", "a.example", "[] rule"},
		"of two":          {packet(func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) }, "a.example.", dns.TypeA, "a.example. 300 IN A 93.184.216.34"), false, false, "[] []", "a.example", "[] rule"},
		"class CH":        {packet(func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }, "a.example.", dns.TypeA, "a.example. 300 IN A 93.184.216.34"), false, false, "[] []", "a.example", "[] rule"},
		"of no host":      {packet(nil, `a\032b.example.`, dns.TypeA), false, false, "[] []", "a.example", "[] rule"},
		"of type ANY":     {packet(nil, "a.example.", dns.TypeANY, "a.example. 300 IN A 93.184.216.34"), true, false, "[] []", "a.example", "[] rule"},
		"a format error":  {packet(func(m *dns.Msg) { m.Rcode = dns.RcodeFormatError }, "a.example.", dns.TypeA), false, false, "[] []", "a.example", "[] rule"},
		"cut":             {packet(nil, "a.example.", dns.TypeA, "a.example. 300 IN A 93.184.216.34")[:40], false, false, "[] []", "a.example", "[] rule"},
	} {
		r := NewReplay(&policies.Policy{Hosts: []policies.HostMapping{mapped}}, judgeOf("*.example"))
		seen, taken := r.Answer(c.answer)
		if got := fmt.Sprint(seen.Addrs, " ", seen.Removed); taken != c.taken || taken && seen.Verdict.Allowed() != c.allow || got != c.seen {
			t.Errorf("%s: %v, %v, %s; want %v, %v, %s", what, taken, seen.Verdict.Allowed(), got, c.taken, c.allow, c.seen)
		}
		addrs, v := r.Resolve(name(c.ask))
		if got := fmt.Sprint(addrs, " ", v.Reason); got != c.got {
			t.Errorf("%s: later %s, want %s", what, got, c.got)
		}
	}
	r := NewReplay(&policies.Policy{Hosts: []policies.HostMapping{mapped}}, judgeOf("*.example"))
	given := func(n string, addrs ...netip.Addr) string {
		r.Given(name(n), addrs)
		got, v := r.Resolve(name(n))
		return fmt.Sprint(got, " ", v.Reason)
	}
	for _, c := range [][2]string{
		{given("b.example", addr("2606:2800::1"), addr("93.184.216.34")), "[93.184.216.34 2606:2800::1] rule"},
		{given("c.example", addr("10.0.0.1")), "[] rebinding"},
		{given("d.example"), "[] rule"},
		{given("c.example", addr("93.184.216.35")), "[93.184.216.35] rule"},
		{given("a.test", addr("93.184.216.34")), "[] no_rule"},
		{given("in.example", addr("198.18.0.9")), "[198.18.0.9] rule"},
		{fmt.Sprint(r.Pinned(addr("93.184.216.34"))), "[b.example]"},
	} {
		if c[0] != c[1] {
			t.Errorf("given %s, want %s", c[0], c[1])
		}
	}
	r.At(time.Hour)
	r.At(time.Minute) // never back
	if got := r.Question([]byte("short")); !got.Name.IsZero() || got.Verdict.Reason.String() != "invalid" {
		t.Errorf("%+v", got)
	}
}
