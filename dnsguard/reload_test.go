package dnsguard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/policies"
)

// labJudge allows lab.example, with private addresses or without.
func labJudge(private bool) *testJudge {
	j := judgeOf("lab.example")
	if private {
		j.private = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	}
	return j
}

var labRecords = records("lab.example. 300 IN A 10.0.0.1", "lab.example. 300 IN A 93.184.216.34")

func TestI6_ReloadDropsPinsOfForbiddenAddresses(t *testing.T) {
	t.Parallel()
	k := newKit(t, labJudge(true), labRecords)
	k.ask(t, "lab.example", dns.TypeA)
	n, inside, outside := name("lab.example"), addr("10.0.0.1"), addr("93.184.216.34")
	if !k.Pins().pinned(n, inside) || !k.Pins().pinned(n, outside) {
		t.Fatalf("pinned before: %v", k.Pins().Addrs(n))
	}
	defer k.Pins().Hold(n, inside)() // a live flow is no reason to keep it
	k.setJudge(t, labJudge(false))
	if got := k.Pins().Addrs(n); !slices.Equal(got, []netip.Addr{outside}) {
		t.Errorf("pinned after the rule for 10.0.0.0/8 is gone: %v, want %v alone", got, outside)
	}
	if m, _ := k.ask(t, "lab.example", dns.TypeA); !slices.Equal(texts(m), []string{outside.String()}) {
		t.Errorf("answered %v", texts(m))
	}
}

// TestI6_LookupsAreNotSharedAcrossReloads asks while the same question of the older policy is under way.
func TestI6_LookupsAreNotSharedAcrossReloads(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	k := newKit(t, labJudge(true), func(w dns.ResponseWriter, m *dns.Msg) {
		<-release
		labRecords(w, m)
	})
	asked := func(n int64) {
		for end := time.Now().Add(time.Minute); k.auth.asked.Load() < n && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	answers := make(chan *dns.Msg, 2)
	question := func() {
		m, _ := k.Answer(context.Background(), new(dns.Msg).SetQuestion("lab.example.", dns.TypeA))
		answers <- m
	}
	go question()
	asked(1)
	k.setJudge(t, labJudge(false))
	go question()
	asked(2)
	close(release)
	got := [2]*dns.Msg{<-answers, <-answers}
	if n := k.auth.asked.Load(); n != 2 {
		t.Errorf("the upstream was asked %d times, want once for each policy", n)
	}
	if len(texts(got[0])) == 2 && len(texts(got[1])) == 2 {
		t.Errorf("the question of the new policy was answered with %v", texts(got[1]))
	}
}

func TestI11_HeldPinsAreNotEvicted(t *testing.T) {
	t.Parallel()
	p, clock := testPins()
	n, a := name("held.example"), addr("93.184.216.34")
	p.put(n, []netip.Addr{a}, time.Hour)
	defer p.Hold(n, a)()
	for i := range 2 * maxPinsPerName {
		clock.advance(time.Millisecond)
		p.put(n, []netip.Addr{numbered(i)}, time.Hour)
	}
	if !p.pinned(n, a) || len(p.Addrs(n)) != maxPinsPerName {
		t.Errorf("a name with many addresses: held %v, %d addresses", p.pinned(n, a), len(p.Addrs(n)))
	}
	for i := range 2 * maxNamesPerAddr {
		clock.advance(time.Millisecond)
		p.put(name(fmt.Sprintf("n%d.example", i)), []netip.Addr{a}, time.Hour)
	}
	if !p.pinned(n, a) || len(p.Names(a)) != maxNamesPerAddr {
		t.Errorf("an address with many names: held %v, %d names", p.pinned(n, a), len(p.Names(a)))
	}
}

// TestI6_OnlyClassINCountsInAnswers has an upstream answer with records of class CH among others.
func TestI6_OnlyClassINCountsInAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		records []string
		want    []string
	}{
		{"address", []string{"a.example. 300 CH A 93.184.216.34"}, nil},
		{"one of two", []string{"a.example. 300 CH A 93.184.216.34", "a.example. 300 IN A 93.184.216.35"}, []string{"93.184.216.35"}},
		{"chain", []string{"a.example. 300 CH CNAME b.example.", "b.example. 300 IN A 93.184.216.34"}, nil},
	} {
		k := newKit(t, judgeOf("a.example"), func(w dns.ResponseWriter, m *dns.Msg) {
			reply := new(dns.Msg).SetReply(m)
			for _, line := range c.records {
				rr, err := dns.NewRR(line)
				if err != nil {
					t.Error(err)
					return
				}
				reply.Answer = append(reply.Answer, rr)
			}
			_ = w.WriteMsg(reply)
		})
		m, _ := k.ask(t, "a.example", dns.TypeA)
		if got := texts(m); !slices.Equal(got, c.want) {
			t.Errorf("%s: answered %v, want %v", c.name, got, c.want)
		}
		if got := k.Pins().Addrs(name("a.example")); len(got) != len(c.want) {
			t.Errorf("%s: pinned %v", c.name, got)
		}
	}
}

// TestI6_ReloadsJudgeLateAnswers: a question is under way when a policy comes under which the address, or the name,
// isn't allowed, or [hosts] has a target for the name.
func TestI6_ReloadsJudgeLateAnswers(t *testing.T) {
	t.Parallel()
	for what, next := range map[string]struct {
		judge  *testJudge
		hosts  []policies.HostMapping
		pinned bool
	}{
		"the same (twin)":            {labJudge(true), nil, true},
		"the address is not allowed": {labJudge(false), nil, false},
		"the name is not allowed":    {judgeOf("other.example"), nil, false},
		"the name has a target":      {labJudge(true), mappings("lab.example"), false},
	} {
		asked, release := make(chan struct{}, 1), make(chan struct{})
		k := newKit(t, labJudge(true), func(w dns.ResponseWriter, m *dns.Msg) {
			asked <- struct{}{}
			<-release
			labRecords(w, m)
		})
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			k.Answer(context.Background(), new(dns.Msg).SetQuestion("lab.example.", dns.TypeA))
		}()
		<-asked
		p := *k.epoch.Load().policy
		p.Hosts = next.hosts
		if err := k.reload(&p, next.judge); err != nil {
			t.Fatal(err)
		}
		close(release)
		<-answered
		if got := k.Pins().Addrs(name("lab.example")); slices.Contains(got, addr("10.0.0.1")) != next.pinned {
			t.Errorf("%s: pinned %v", what, got)
		}
	}
}
