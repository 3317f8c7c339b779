package dnsguard

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
)

func TestAllowedNamesArePinnedAndAudited(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("api.example"), records("api.example. 300 IN A 93.184.216.34"))
	m, why := k.ask(t, "api.example", dns.TypeA)
	if m.Rcode != dns.RcodeSuccess || !slices.Equal(texts(m), []string{"93.184.216.34"}) {
		t.Fatalf("got %v", m)
	}
	if why.Outcome != OutcomeAnswered || why.Cached || why.Upstream != "udp://"+upstreamAddr {
		t.Errorf("explained as %+v", why)
	}
	if !k.Pins().pinned(name("api.example"), addr("93.184.216.34")) {
		t.Error("the address is not pinned")
	}
	m, why = k.ask(t, "API.example", dns.TypeA)
	if !why.Cached || k.auth.asked.Load() != 1 {
		t.Errorf("the second question went upstream: %+v", why)
	}
	if got := m.Question[0].Name; got != "API.example." {
		t.Errorf("the question came back as %q", got)
	}
	events := k.audit.kind(audit.DNSQuery)
	if len(events) != 2 || events[0].Action != "allow" || events[0].DNS.Answers[0] != "93.184.216.34" || !events[1].DNS.Cached {
		t.Errorf("audited as %+v", events)
	}
}

func TestI6_UnallowedNamesAreRefused(t *testing.T) {
	t.Parallel()
	judge := judgeOf("*.example")
	judge.deny = judgeOf("bad.example").allow
	k := newKit(t, judge, records("evil.test. 300 IN A 93.184.216.34"))
	for _, c := range []struct {
		name string
		code uint16
		text string
	}{
		{"evil.test", dns.ExtendedErrorCodeProhibited, "no allow rule"},
		{"bad.example", dns.ExtendedErrorCodeBlocked, "denied bad.example"},
	} {
		m, _ := k.ask(t, c.name, dns.TypeA)
		code, text, ok := ede(m)
		if m.Rcode != dns.RcodeNameError || len(m.Ns) != 0 || !ok || code != c.code || !strings.Contains(text, c.text) {
			t.Errorf("%s: got %s, EDE %d %q", c.name, dns.RcodeToString[m.Rcode], code, text)
		}
	}
	if n := k.auth.asked.Load(); n != 0 {
		t.Errorf("%d questions left the host", n)
	}
	for _, e := range k.audit.kind(audit.DNSQuery) {
		if e.Action != "deny" {
			t.Errorf("audited as %+v", e)
		}
	}
}

func TestGuestTTLEqualsThePins(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("short.example. 1 IN A 93.184.216.34", "long.example. 86400 IN A 93.184.216.34"))
	for _, c := range []struct {
		name string
		ttl  uint32
	}{{"short.example", 60}, {"long.example", 3600}} {
		m, _ := k.ask(t, c.name, dns.TypeA)
		if got := m.Answer[0].Header().Ttl; got != c.ttl {
			t.Errorf("%s: the guest gets a TTL of %d s, want %d", c.name, got, c.ttl)
		}
	}
	k.clock.advance(1000*time.Second + time.Millisecond)
	m, why := k.ask(t, "long.example", dns.TypeA)
	if got := m.Answer[0].Header().Ttl; got != 2600 || !why.Cached {
		t.Errorf("1000 s later: a TTL of %d s (cached %v), want what is left, rounded up: 2600", got, why.Cached)
	}
}
