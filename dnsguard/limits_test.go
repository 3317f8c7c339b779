package dnsguard

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

func TestI11_RateIsBoundedAndReportedOnce(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), records("a.example. 300 IN A 93.184.216.34"), func(c *Config) { c.Policy.Limits.DNSPerSecond = 10 })
	g := k.udpGuest(t)
	packet := mustPack(t, new(dns.Msg).SetQuestion("a.example.", dns.TypeA))
	ask := func(count int) (answered int) {
		for range count {
			if mustUnpack(t, g.exchange(packet)).Rcode == dns.RcodeSuccess {
				answered++
			}
		}
		return answered
	}
	if n := ask(100); n != 10 {
		t.Errorf("%d of 100 at once were answered, want the burst of 10", n)
	}
	k.clock.advance(500 * time.Millisecond)
	if n := ask(100); n != 5 {
		t.Errorf("%d were answered half a second later, want 5", n)
	}
	if limited := k.Stats().Limited; limited != 185 {
		t.Errorf("%d counted, want 185", limited)
	}
	if events := k.audit.kind(audit.Limit); len(events) != 185 {
		t.Errorf("%d events, want one for each question above the rate", len(events))
	}
}

func wildcardPolicy(hosts ...string) func(*Config) {
	return func(c *Config) {
		rule := policies.Rule{Name: "wild"}
		for _, h := range hosts {
			rule.Hosts = append(rule.Hosts, hostname.MustParsePattern(h))
		}
		c.Policy.Egress.Allow = []policies.Rule{rule}
	}
}

func TestI11_NamesBelowAWildcardAreBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example", "exact.example"), records("exact.example. 1 IN A 93.184.216.34"), wildcardPolicy("*.example", "*.deep.example", "exact.example"))
	refused := func(format string, count int) (n int) {
		for i := range count {
			if m, _ := k.ask(t, fmt.Sprintf(format, i), dns.TypeTXT); m.Rcode == dns.RcodeRefused {
				n++
			}
		}
		return n
	}
	if n := refused("n%d.example", tunnelQuestions+20); n != 20 {
		t.Errorf("%d names were refused, want 20", n)
	}
	if m, _ := k.ask(t, "exact.example", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("a name of its own rule: %v", m)
	}
	// A closer wildcard has a bound of its own, and long labels fill it sooner.
	long := strings.Repeat("x", 60)
	want := tunnelBytes / (3*61 + 3) // "%03d" and three labels with their dots
	if n := refused("%03d"+long[:57]+"."+long+"."+long+".deep.example", want+10); n < 8 || n > 12 {
		t.Errorf("%d long names were refused, want about 10", n)
	}
	k.clock.advance(tunnelWindow)
	if n := refused("later%d.example", 10); n != 0 {
		t.Errorf("%d names were refused in the next window", n)
	}
	if n := k.Stats().Limited; n < 28 {
		t.Errorf("%d counted", n)
	}
}

// Names fill a zone to its last byte and not one further.
func TestI11_BytesBelowAWildcardAreBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("*.example"), nil, wildcardPolicy("*.example"))
	const size = 128 // of each name, without its zone
	i := 0
	asked := func(extra int) bool {
		i++
		name := fmt.Sprintf("%04d%s.%s.%s.example", i, strings.Repeat("x", 56), strings.Repeat("y", 60), strings.Repeat("z", extra-4-56-1-60-1))
		before := k.auth.asked.Load()
		k.ask(t, name, dns.TypeTXT)
		return k.auth.asked.Load() > before
	}
	for range tunnelBytes/size - 1 {
		if !asked(size) {
			t.Fatalf("name %d was refused", i)
		}
	}
	if asked(size + 1) {
		t.Error("a name that is one byte longer than what is left was asked upstream")
	}
	if !asked(size) {
		t.Error("a name that fits was refused")
	}
	if m, _ := k.ask(t, "a.example", dns.TypeTXT); m.Rcode != dns.RcodeRefused {
		t.Errorf("with the bytes used up: %v", m)
	}
}

func TestI11_ServiceLabelsAreBounded(t *testing.T) {
	t.Parallel()
	k := newKit(t, judgeOf("api.example"), nil, wildcardPolicy("api.example"))
	for _, c := range []struct {
		name  string
		qtype uint16
		ok    bool
	}{
		{"_sip._tcp.api.example", dns.TypeSRV, true},
		{"_8443._https.api.example", dns.TypeHTTPS, true},
		{"_sip._tcp.api.example", dns.TypeA, false},
		{"_a._b._c.api.example", dns.TypeSRV, false},
		{"_this-is-longer-than-a-service.api.example", dns.TypeSRV, false},
		{"x.api.example", dns.TypeSRV, false},
		{"_sip._tcp.other.example", dns.TypeSRV, false},
	} {
		if _, why := k.ask(t, c.name, c.qtype); (why.Outcome != OutcomeRefusedName) != c.ok {
			t.Errorf("%s: %v", c.name, why.Outcome)
		}
	}
	refused := 0
	for i := range tunnelQuestions + 10 {
		if m, _ := k.ask(t, fmt.Sprintf("_s%d._tcp.api.example", i), dns.TypeSRV); m.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	if refused < 10 {
		t.Errorf("%d service names were refused, want at least 10", refused)
	}
}

func TestI11_QuestionsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	// The dial waits without regard to its deadline: on a slow machine the first questions would otherwise be given
	// up before the last one arrives.
	hold := make(chan struct{})
	k := newKit(t, judgeOf("*.example"), nil, func(c *Config) {
		dial := c.Dialer
		c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-hold
			return dial(ctx, network, addr)
		}
	})
	g := k.udpGuest(t)
	for i := range maxInFlight {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.example.", i), dns.TypeA)
		if _, err := g.Write(mustPack(t, m)); err != nil {
			t.Fatal(err)
		}
		for k.Stats().Queries != uint64(i+1) {
			runtime.Gosched()
		}
	}
	m := new(dns.Msg).SetQuestion("more.example.", dns.TypeA)
	m.SetEdns0(1232, false)
	got := mustUnpack(t, g.exchange(mustPack(t, m)))
	if _, text, ok := ede(got); got.Rcode != dns.RcodeServerFailure || !ok || !strings.Contains(text, "wait") {
		t.Errorf("got %v", got)
	}
	close(hold)
	for range maxInFlight {
		g.read()
	}
}

// TestSoakLeavesNothingBehind sends 100,000 queries of every outcome, over many
// flows, and compares goroutines and descriptors with the start.
func TestSoakLeavesNothingBehind(t *testing.T) {
	k := newKit(t, judgeOf("*.example"), records(
		"a.example. 0 IN A 93.184.216.34",
		"b.example. 300 IN A 93.184.216.35",
		"evil.example. 300 IN A 127.0.0.1",
	), func(c *Config) { c.Audit = audit.Discard{} })
	names := []string{"b.example.", "B.Example.", "evil.test.", "localhost.", "b.example.", "none.example.", "b.example.", "_x.example."}
	const flows, queries = 100, 1000
	var goroutines, descriptors int
	for flow := range flows {
		server, client := udpPair(t)
		done := make(chan struct{})
		go func() { defer close(done); k.ServeUDP(t.Context(), server) }()
		g := &guest{client, t}
		for i := range queries {
			n := names[i%len(names)]
			switch {
			case i%100 == 50:
				n = "a.example."
			case i%500 == 51:
				n = "evil.example."
			}
			g.exchange(mustPack(t, new(dns.Msg).SetQuestion(n, dns.TypeA)))
		}
		_ = client.Close()
		_ = server.Close()
		<-done
		if flow == 0 {
			goroutines, descriptors = runtime.NumGoroutine(), openDescriptors(t)
		}
	}
	if n := k.Stats().Queries; n != flows*queries {
		t.Errorf("%d queries counted, want %d", n, flows*queries)
	}
	settled := func() bool {
		return runtime.NumGoroutine() <= goroutines+2 && openDescriptors(t) <= descriptors+2
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if settled() {
			return
		}
	}
	t.Errorf("%d goroutines and %d descriptors, after the first flow %d and %d", runtime.NumGoroutine(), openDescriptors(t), goroutines, descriptors)
}

// openDescriptors counts this process's descriptors.
func openDescriptors(t *testing.T) int {
	t.Helper()
	dir := "/proc/self/fd"
	if runtime.GOOS == "darwin" {
		dir = "/dev/fd"
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestCloseEndsFlowsThatWait(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	k := newKit(t, judgeOf("*.example"), func(dns.ResponseWriter, *dns.Msg) { <-hold })
	g := k.udpGuest(t)
	if _, err := g.Write(mustPack(t, new(dns.Msg).SetQuestion("a.example.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	for k.auth.asked.Load() == 0 {
		runtime.Gosched()
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	close(hold)
	if m, _ := k.ask(t, "b.example", dns.TypeA); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("after Close: %v", m)
	}
}
