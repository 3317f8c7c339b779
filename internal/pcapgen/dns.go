package pcapgen

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// resolver is where guests ask.
const resolver = "192.168.127.1:53"

// addZone adds records that the world's resolver answers with, in zone-file form.
func (t *tape) addZone(lines ...string) {
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		must(err)
		name := strings.ToLower(rr.Header().Name)
		t.zone[name] = append(t.zone[name], l)
	}
}

// answerTo is what the world answers to a question.
func (t *tape) answerTo(q *dns.Msg) *dns.Msg {
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	name := strings.ToLower(q.Question[0].Name)
	for range 4 {
		next := ""
		for _, l := range t.zone[name] {
			rr, err := dns.NewRR(l)
			must(err)
			if rr.Header().Rrtype == q.Question[0].Qtype || rr.Header().Rrtype == dns.TypeCNAME {
				m.Answer = append(m.Answer, rr)
			}
			if c, ok := rr.(*dns.CNAME); ok {
				next = strings.ToLower(c.Target)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if len(t.zone[strings.ToLower(q.Question[0].Name)]) == 0 {
		m.Rcode = dns.RcodeNameError
	}
	return m
}

func question(name string, kind, id uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(dns.Fqdn(name), kind)
	q.Id = id
	return q
}

func packed(m *dns.Msg) []byte {
	b, err := m.Pack()
	must(err)
	return b
}

// resolve asks for name over UDP and shows the answer.
func (t *tape) resolve(name string, kind uint16) { t.resolveAt(resolver, name, kind) }

// resolveAt is resolve with another resolver.
func (t *tape) resolveAt(server, name string, kind uint16) {
	t.id++
	q := question(name, kind, t.id)
	port := t.udp(server, packed(q))
	t.datagram(false, port, netip.MustParseAddrPort(server), packed(t.answerTo(q)))
}

// ask sends a query of any bytes, which nothing answers.
func (t *tape) ask(packet []byte) { t.udp(resolver, packet) }

// framed is a message as it goes over TCP.
func framed(b []byte) []byte { return append(be16(len(b)), b...) }

// lookup is a zone record and its resolution at once: the ordinary beginning of most flows.
func (t *tape) lookup(name, addr string) {
	kind, text := dns.TypeA, " 300 IN A "
	if netip.MustParseAddr(addr).Is6() {
		kind, text = dns.TypeAAAA, " 300 IN AAAA "
	}
	t.addZone(dns.Fqdn(name) + text + addr)
	t.resolve(name, kind)
}
