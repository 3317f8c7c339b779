package pcapgen

import (
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// expiring is a policy whose pins end soon.
const expiring = webOnly + "\n[dns]\nmin_ttl = \"10s\"\nmax_ttl = \"30s\"\n"

// answerCases are what comes back for a name, and what the guest makes of it; then odd spellings of names.
func answerCases() []Case {
	return []Case{
		{
			Name: "dns-cname-loop", Policy: webOnly,
			Title: "Aliases that lead in a circle, and a chain of thirty.",
			Story: "An allowed name is an alias of a second, which is an alias of the first; another begins a " +
				"chain of thirty aliases below the attacker's zone. A resolver that follows every alias asks " +
				"for ever, at the expense of the host. The answer is looked through as it is, with a bound: " +
				"neither leads to an address, and the connection that the guest tries finds nothing pinned.",
			build: func(t *tape) {
				t.addZone("loop.good.example. 60 IN CNAME back.good.example.", "back.good.example. 60 IN CNAME loop.good.example.")
				for i := range 30 {
					t.addZone(fmt.Sprintf("c%d.good.example. 60 IN CNAME c%d.good.example.", i, i+1))
				}
				t.addZone("c30.good.example. 60 IN A " + evil)
				t.resolve("loop.good.example", dns.TypeA)
				t.resolve("c0.good.example", dns.TypeA)
				t.dial(evil + ":443").say(helloFor("c0.good.example")).Close()
			},
		},
		{
			Name: "dns-many-records", Policy: webOnly,
			Title: "One name with more addresses than a name may pin.",
			Story: "An allowed name of the attacker's answers with seventy-two addresses, as many as a datagram " +
				"holds; by TCP it could be a thousand and more. If each were pinned, one question would open " +
				"every door and fill the table. Sixty-four addresses of an answer count, the others are not " +
				"even shown to the guest: the connection to the first is allowed, the one to the last finds " +
				"nothing pinned.",
			build: func(t *tape) {
				for i := range 72 {
					t.addZone(fmt.Sprintf("big.good.example. 60 IN A 93.190.1.%d", 100+i))
				}
				t.resolve("big.good.example", dns.TypeA)
				t.dial("93.190.1.100:443").say(helloFor("big.good.example")).Close()
				t.dial("93.190.1.171:443").say(helloFor("big.good.example")).Close()
			},
		},
		{
			Name: "dns-service-alias", Policy: webOnly,
			Title: "HTTPS and SVCB records that send the client to another name.",
			Story: "Three allowed names have HTTPS or SVCB records whose target is another name: a metadata " +
				"service, a host that no rule has, and one more with its address as a hint. Clients follow " +
				"such a target as they follow an alias. What the record leads to is not what the rule says: " +
				"nothing is pinned for the other host, and the connection to its address is denied.",
			build: func(t *tape) {
				t.addZone("a.good.example. 60 IN HTTPS 0 metadata.google.internal.", "b.good.example. 60 IN HTTPS 1 evil.example. alpn=h2",
					"c.good.example. 60 IN SVCB 1 evil.example. alpn=h2 port=22 ipv4hint="+evil)
				t.resolve("a.good.example", dns.TypeHTTPS)
				t.resolve("b.good.example", dns.TypeHTTPS)
				t.resolve("c.good.example", dns.TypeSVCB)
				t.dial(evil + ":443").say(helloFor("evil.example")).Close()
			},
		},
		{
			Name: "dns-cdn-race", Policy: webOnly,
			Title: "Two processes ask for one name of a CDN and get different addresses.",
			Story: "Two programs in the guest ask for the same allowed name within a moment, and the CDN gives " +
				"each another address, as it does for every question. If the second answer took the place of " +
				"the first, one of the two would be refused at random. Pins of a name add up while they live: " +
				"both connections are allowed, each to the address that its own program was told.",
			build: func(t *tape) {
				const second = "93.184.215.77"
				t.addZone("cdn.good.example. 60 IN A "+good, "cdn.good.example. 60 IN A "+second)
				for i := range 2 {
					q := question("cdn.good.example", dns.TypeA, uint16(i+1))
					port := t.udp(resolver, packed(q))
					answer := t.answerTo(q)
					answer.Answer = answer.Answer[i : i+1]
					t.datagram(false, port, gatewayDNS, packed(answer))
				}
				for _, addr := range []string{good, second} {
					t.dial(addr + ":443").say(helloFor("cdn.good.example", "h2")).Close()
				}
			},
		},
		{
			Name: "dns-pin-outlived", Timed: true, Policy: expiring,
			Title: "A flow that lives longer than the pin it was allowed by.",
			Story: "A connection to a pinned address stays open for an hour, with something said every ten " +
				"minutes, while the pin ended after thirty seconds. Downloads and event streams are like " +
				"that, and cutting them off would break honest programs. A flow is judged when it begins and " +
				"lives on; a new connection to the address that was only remembered is refused until the name " +
				"is asked for again.",
			build: func(t *tape) {
				c := t.pinned().say(helloFor("good.example", "h2")).hear(serverSpeaks(800))
				for range 6 {
					t.wait(10 * time.Minute)
					c.say(clientSpeaks(100)).hear(serverSpeaks(100))
				}
				t.syn(good + ":443")
				c.say(clientSpeaks(100)).hear(serverSpeaks(100)).Close()
			},
		},
		{
			Name: "dns-edns", Policy: webOnly, Odd: true,
			Title: "EDNS options: padding, a client's subnet, bytes of any meaning, sizes of 0 and 65,535.",
			Story: "Eight questions for an allowed name bring EDNS with them: padding, a client subnet that " +
				"names a private network, a cookie, five hundred bytes under a private code, sizes of nothing " +
				"and of 64 KiB, version 1, and two such records. Options would tell a resolver outside about " +
				"the inside, or carry data past those who count names. The gateway asks with its own; the " +
				"last two are refused, and the others answered without their options.",
			build: func(t *tape) {
				t.addZone("good.example. 300 IN A " + good)
				for i, shape := range ednsShapes() {
					q := question("good.example", dns.TypeA, uint16(i+1))
					shape(q)
					port := t.udp(resolver, packed(q))
					t.datagram(false, port, gatewayDNS, packed(t.answerTo(q)))
				}
			},
		},
		{
			Name: "dns-homographs", Policy: webOnly + "\n[[egress.allow]]\nname = \"books\"\nhosts = [\"bücher.example\"]\nports = [443]\nprotocol = \"tls\"\n", Odd: true,
			Title: "Names that look like an allowed one: Cyrillic, IPA and full-width letters, as bytes and in their ASCII form.",
			Story: "The policy has good.example and bücher.example. The guest asks for names that look the same " +
				"to people: with Cyrillic o, IPA g or full-width letters, in ASCII form and as raw UTF-8. The " +
				"last would even become the allowed name if the resolver tidied up what it is asked. Rules " +
				"compare the ASCII form that goes over the wire: only the names of the policy, in any case, " +
				"are resolved; raw bytes are no host name at all.",
			build: func(t *tape) {
				t.addZone("xn--bcher-kva.example. 300 IN A "+good, "good.example. 300 IN A "+good)
				for _, name := range []string{
					"xn--bcher-kva.example", "XN--BCHER-KVA.Example", "xn--gd-fmca.example", "xn--ood-8tb.example", "xn--pi7cfya.example",
					"good.xn--exmple-4nf", "xn--a.good.example",
				} {
					t.resolve(name, dns.TypeA)
				}
				for _, name := range []string{"bücher.example", "gооd.example", "ｇｏｏｄ.example"} {
					q := question("x.example", dns.TypeA, 99)
					q.Question[0].Name = escaped(name) + "."
					t.ask(packed(q))
				}
			},
		},
		{
			Name: "dns-quic", Policy: everything,
			Title: "DNS over QUIC and over HTTP/3 to public resolvers.",
			Story: "The guest sends QUIC Initial packets to a public resolver: to port 853, which RFC 9250 gives " +
				"to DNS over QUIC, to two ports that were used before it, and to 443 for DNS over HTTP/3. " +
				"Encrypted questions would be answered past the gateway, and nothing of them would be pinned " +
				"or written down. Ports 853 and 443 are refused although everything public is open; on the " +
				"other ports a datagram is only a datagram, which this policy lets out.",
			build: func(t *tape) {
				initial := append([]byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96}, make([]byte, 1182)...)
				for _, port := range []string{"853", "443", "784", "8853"} {
					t.udp("94.140.14.14:"+port, initial)
					t.udp("1.1.1.1:"+port, initial)
				}
			},
		},
	}
}

// escaped is a name in the zone-file form of its bytes.
func escaped(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c < 0x80 {
			b.WriteByte(c)
		} else {
			_, _ = fmt.Fprintf(&b, `\%03d`, c)
		}
	}
	return b.String()
}

// ednsShapes give a question OPT records.
func ednsShapes() []func(*dns.Msg) {
	with := func(size uint16, version uint8, options ...dns.EDNS0) func(*dns.Msg) {
		return func(q *dns.Msg) {
			q.SetEdns0(size, false)
			opt := q.IsEdns0()
			opt.SetVersion(version)
			opt.Option = options
		}
	}
	return []func(*dns.Msg){
		with(1232, 0, &dns.EDNS0_PADDING{Padding: make([]byte, 400)}),
		with(1232, 0, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: []byte{10, 1, 2, 0}}),
		with(1232, 0, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0123456789abcdef"}),
		with(1232, 0, &dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: []byte(strings.Repeat("stolen", 80))}),
		with(0, 0), with(65535, 0), with(1232, 1),
		func(q *dns.Msg) {
			with(1232, 0)(q)
			q.Extra = append(q.Extra, q.Extra[0])
		},
	}
}
