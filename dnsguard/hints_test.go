package dnsguard

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// everyAddr is a judge without the rule about addresses.
type everyAddr struct{ Judge }

func (everyAddr) AllowsAddr(hostname.Name, netip.Addr) egress.Verdict {
	return egress.Verdict{Action: egress.Allow}
}

// TestI5_AddressesOfEveryRecordAreJudged puts addresses inside and outside into every record that can carry them, behind
// chains of CNAMEs: what the guest gets, and what is pinned, is what the name may have. The twin is a judge that lets
// every address pass.
func TestI5_AddressesOfEveryRecordAreJudged(t *testing.T) {
	t.Parallel()
	p, err := policies.Parse("p.toml", []byte("version = 1\n[[egress.allow]]\nhosts = [\"wiki.corp.example\"]\nwithin = [\"10.20.0.0/16\", \"fd00:20::/32\"]\n[[egress.allow]]\nhosts = [\"www.example\"]\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	engine, err := egress.New(p)
	if err != nil {
		t.Fatal(err)
	}
	may := map[string]func(netip.Addr) bool{
		"wiki.corp.example": func(a netip.Addr) bool {
			return netip.MustParsePrefix("10.20.0.0/16").Contains(a) || netip.MustParsePrefix("fd00:20::/32").Contains(a)
		},
		"www.example": func(a netip.Addr) bool {
			return a == addr("93.184.216.34") || a == addr("2606:2800::1")
		},
	}
	pool := []string{"93.184.216.34", "2606:2800::1", "10.20.0.5", "10.20.255.255", "10.21.0.0", "fd00:20::7", "fd00:21::"}
	for _, c := range internal {
		pool = append(pool, c.addr)
	}
	for _, defended := range []bool{true, false} {
		var mu sync.Mutex
		var answer []dns.RR
		k := newKit(t, judgeOf(), func(w dns.ResponseWriter, m *dns.Msg) {
			mu.Lock()
			defer mu.Unlock()
			reply := new(dns.Msg).SetReply(m)
			reply.Answer = answer
			_ = w.WriteMsg(reply)
		}, func(c *Config) {
			c.Judge = engine
			if !defended {
				c.Judge = everyAddr{engine}
			}
		})
		r := rand.New(rand.NewPCG(5, 9460))
		given, handed, wrong := 0, 0, 0
		for range 600 {
			host := [...]string{"wiki.corp.example", "www.example"}[r.IntN(2)]
			qtype := [...]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeHTTPS, dns.TypeSVCB}[r.IntN(4)]
			lines, owner := []string(nil), host+"."
			for i := range r.IntN(4) {
				next := fmt.Sprintf("c%d.cdn.test.", i)
				lines, owner = append(lines, owner+" 0 IN CNAME "+next), next
			}
			var addrs []string
			for range 1 + r.IntN(4) {
				addrs = append(addrs, pool[r.IntN(len(pool))])
			}
			lines = append(lines, carrying(owner, qtype, r.IntN(4), addrs)...)
			mu.Lock()
			answer = nil
			for _, line := range lines {
				rr, err := dns.NewRR(line)
				if err != nil {
					t.Fatal(line, err)
				}
				answer = append(answer, rr)
			}
			given += len(carried(t, answer))
			mu.Unlock()
			m, _ := k.ask(t, host, qtype)
			for _, a := range carried(t, m.Answer) {
				handed++
				if !may[host](a) {
					wrong++
				}
				if !k.Pins().pinned(hostname.MustParse(host), a) {
					t.Errorf("%q: %v was handed out and isn't pinned", lines, a)
				}
			}
			for _, a := range k.Pins().Addrs(hostname.MustParse(host)) {
				if !may[host](a) {
					wrong++
				}
			}
			if defended && wrong > 0 {
				t.Fatalf("%q: the guest got %v, pinned %v", lines, m, k.Pins().Addrs(hostname.MustParse(host)))
			}
		}
		if handed == 0 || handed == given || !defended && wrong == 0 {
			t.Errorf("defended %v: of %d addresses %d were handed out, %d of them or of the pinned ones wrongly", defended, given, handed, wrong)
		}
	}
}

// carrying is records of a type that hold those of the addresses that fit it. Services have the priority; with 0 they are
// aliases, whose parameters mean nothing (RFC 9460, section 2.4.2).
func carrying(owner string, qtype uint16, priority int, addrs []string) (lines []string) {
	hints := map[string][]string{}
	for _, a := range addrs {
		kind, hint := dns.TypeA, "ipv4hint"
		if strings.Contains(a, ":") {
			kind, hint = dns.TypeAAAA, "ipv6hint"
		}
		if !strings.HasPrefix(a, "::ffff:") || strings.HasPrefix(a, "::ffff:0:") { // the library takes no mapped ones in hints
			hints[hint] = append(hints[hint], a)
		}
		if kind == qtype {
			lines = append(lines, fmt.Sprintf("%s 0 IN %s %s", owner, dns.TypeToString[kind], a))
		}
	}
	if qtype != dns.TypeHTTPS && qtype != dns.TypeSVCB {
		return lines
	}
	line := fmt.Sprintf("%s 0 IN %s %d .", owner, dns.TypeToString[qtype], priority)
	for hint, list := range hints {
		line += fmt.Sprintf(` %s="%s"`, hint, strings.Join(list, ","))
	}
	return []string{line}
}

// carried is every address that records hold.
func carried(t *testing.T, rrs []dns.RR) (addrs []netip.Addr) {
	t.Helper()
	add := func(raw []byte) {
		a, ok := netip.AddrFromSlice(raw)
		if !ok {
			t.Fatalf("an address of %d bytes", len(raw))
		}
		addrs = append(addrs, a)
	}
	service := func(rr *dns.SVCB) {
		for _, value := range rr.Value {
			switch v := value.(type) {
			case *dns.SVCBIPv4Hint:
				for _, ip := range v.Hint {
					add(ip.To4())
				}
			case *dns.SVCBIPv6Hint:
				for _, ip := range v.Hint {
					add(ip.To16())
				}
			}
		}
	}
	for _, rr := range rrs {
		switch rr := rr.(type) {
		case *dns.A:
			add(rr.A.To4())
		case *dns.AAAA:
			add(rr.AAAA.To16())
		case *dns.HTTPS:
			service(&rr.SVCB)
		case *dns.SVCB:
			service(rr)
		}
	}
	return addrs
}
