package pcapgen

import (
	"strings"
	"time"

	"github.com/miekg/dns"
)

// lookups are what a guest can do with a resolver.
func lookups() []Case {
	return []Case{
		{
			Name: "dns-udp", Policy: webOnly,
			Title: "Two allowed names and one that is not, over UDP. The third is refused with a reason " +
				"and nothing is asked outside.",
			Story: "The guest asks for good.example, for a name below its wildcard, and for " +
				"evil.example, all by ordinary UDP. A lookup alone can carry data to the name's owner, " +
				"so a name that no rule covers must not be asked about at all. The first two are " +
				"resolved; the third is denied for want of a rule, and no resolver outside sees it.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				t.lookup("www.good.example", good)
				t.lookup("evil.example", evil)
			},
		},
		{
			Name: "dns-tcp", Policy: webOnly,
			Title: "Two questions on one TCP connection, in one segment, with the answers behind each " +
				"other.",
			Story: "Two questions come on one TCP connection, pipelined in one segment, and the answers " +
				"follow each other. A resolver that judges only the first message of a stream would let " +
				"the second through unseen. Each is judged by itself: good.example is answered and the " +
				"TLS connection after it allowed, evil.example is denied, and only the former is asked " +
				"outside.",
			build: func(t *tape) {
				t.addZone("good.example. 300 IN A "+good, "evil.example. 300 IN A "+evil)
				a, b := question("good.example", dns.TypeA, 1), question("evil.example", dns.TypeA, 2)
				c := t.dial(resolver)
				c.say(append(framed(packed(a)), framed(packed(b))...))
				c.hear(append(framed(packed(t.answerTo(a))), framed(packed(t.answerTo(b)))...)).Close()
				t.dial(good + ":443").say(helloFor("good.example", "h2")).Close()
			},
		},
		{
			Name: "dns-other-resolver", Policy: webOnly,
			Title: "The guest asks public resolvers at their own addresses. The gateway answers itself, " +
				"whatever the destination, and nothing is sent to them.",
			Story: "The guest asks 8.8.8.8, 1.1.1.1 and a public resolver's IPv6 address instead of its " +
				"own, as a program with a built-in resolver does. If the packets went there, names would " +
				"be resolved past the policy and data could leave in them. The gateway answers in their " +
				"place: good.example is resolved by its own upstream, evil.example is denied, and " +
				"nothing is sent to the three.",
			build: func(t *tape) {
				t.addZone("good.example. 300 IN A "+good, "evil.example. 300 IN A "+evil)
				t.resolveAt("8.8.8.8:53", "good.example", dns.TypeA)
				t.resolveAt("1.1.1.1:53", "evil.example", dns.TypeA)
				t.resolveAt("[2606:4700:4700::1111]:53", "evil.example", dns.TypeAAAA)
			},
		},
		{
			Name: "dns-tls", Policy: everything,
			Story: "DNS over TLS to a public resolver, by address and by name: it would go around the sandbox's own, so it is shut even where everything public is open.",
			build: func(t *tape) {
				t.syn("1.1.1.1:853")
				t.lookup("dns.google", "8.8.8.8")
				t.dial("8.8.8.8:853").say(helloFor("dns.google", "dot")).Close()
			},
		},
		{
			Name: "dns-https", Policy: everything,
			Title: "DNS over HTTPS to a public resolver, by name and by address.",
			Story: "The guest resolves dns.google and speaks TLS to its address, then connects to " +
				"1.1.1.1 as cloudflare-dns.com without a lookup. DNS over HTTPS would give it answers " +
				"that the gateway never sees and pins for nobody. The name and both connections are " +
				"refused as encrypted DNS even though everything public is open, and nothing is asked or " +
				"dialled.",
			build: func(t *tape) {
				t.visit("dns.google", "8.8.4.4", "h2")
				t.dial("1.1.1.1:443").say(helloFor("cloudflare-dns.com", "h2")).Close()
			},
		},
		{
			Name: "dns-local-announcements", Policy: everything,
			Title: "mDNS, LLMNR and NetBIOS announce to a local network that is not there. They vanish " +
				"without an error, or clients would only log.",
			Story: "The guest sends mDNS and LLMNR questions and a NetBIOS packet, as desktops do for " +
				"their local network, here to a public address. Sent on, they would tell a stranger " +
				"which names the guest looks for. They vanish without a verdict or an error, since no " +
				"local network is there and an ICMP error would only fill a client's log; nothing " +
				"leaves.",
			build: func(t *tape) {
				q := packed(question("printer.local", dns.TypeA, 0))
				t.udp("45.33.32.156:5353", q)
				t.udp("45.33.32.156:5355", q)
				t.udp("45.33.32.156:137", make([]byte, 50))
			},
		},
		{
			Name: "dns-rebinding", Policy: webOnly,
			Story: "An allowed name whose zone is the attacker's resolves to loopback, a private address and a metadata service. The answers are refused, and connecting there fails by class.",
			build: func(t *tape) {
				t.lookup("a.good.example", "127.0.0.1")
				t.lookup("b.good.example", "10.0.0.5")
				t.lookup("c.good.example", "169.254.169.254")
				t.dial("127.0.0.1:443").say(helloFor("a.good.example")).Close()
				t.dial("169.254.169.254:80").say(get("c.good.example", "/latest/meta-data/")).Close()
			},
		},
		{
			Name: "dns-rebinding-later", Timed: true, Policy: webOnly,
			Story: "The name is public at first and private at the second lookup, with a TTL of 0 in between, as rebinding attacks have it. The pin of the first answer stands; the second brings nothing.",
			build: func(t *tape) {
				t.addZone("flip.good.example. 0 IN A " + good)
				t.resolve("flip.good.example", dns.TypeA)
				t.dial(good + ":443").say(helloFor("flip.good.example")).Close()
				t.wait(2 * time.Second)
				t.zone["flip.good.example."] = []string{"flip.good.example. 0 IN A 10.1.2.3"}
				t.resolve("flip.good.example", dns.TypeA)
				t.dial("10.1.2.3:443").say(helloFor("flip.good.example")).Close()
			},
		},
		{
			Name: "dns-mixed", Policy: webOnly,
			Title: "One answer with a public and a private address: the private one is taken out, the " +
				"public one pinned.",
			Story: "An allowed name resolves to one public address and to 192.168.1.1, the usual place " +
				"of a home router. A guest that may dial whatever its allowed name says would reach the " +
				"router through it. The private address is taken out of the answer and refused as " +
				"special when dialled; the public one is pinned, and the TLS connection to it is " +
				"allowed.",
			build: func(t *tape) {
				t.addZone("mixed.good.example. 60 IN A "+good, "mixed.good.example. 60 IN A 192.168.1.1")
				t.resolve("mixed.good.example", dns.TypeA)
				t.syn("192.168.1.1:443")
				t.dial(good + ":443").say(helloFor("mixed.good.example")).Close()
			},
		},
		{
			Name: "dns-cname-internal", Policy: webOnly,
			Title: "An allowed name is an alias of a name that means the inside: the chain is refused " +
				"though its address is public.",
			Story: "An allowed name is an alias of metadata.google.internal, whose address the " +
				"attacker's zone gives as a public one. On a cloud machine another resolver could answer " +
				"the same name with the metadata service. The chain is refused as rebinding for the name " +
				"in it, so nothing is pinned, and the connection to the public address finds no rule " +
				"either.",
			build: func(t *tape) {
				t.addZone("alias.good.example. 60 IN CNAME metadata.google.internal.", "metadata.google.internal. 60 IN A "+evil)
				t.resolve("alias.good.example", dns.TypeA)
				t.dial(evil + ":443").say(helloFor("alias.good.example")).Close()
			},
		},
		{
			Name: "dns-aaaa-forms", Policy: webOnly,
			Title: "AAAA answers that carry loopback inside: mapped, NAT64 and 6to4.",
			Story: "Three allowed names have AAAA answers that carry 127.0.0.1 inside: as a mapped " +
				"address, under the NAT64 prefix and as 6to4. An attacker who owns a zone below the " +
				"wildcard writes these to turn an allowed name into the host. The questions go out, " +
				"since the names are allowed; each answer is refused as rebinding and gives the guest no " +
				"address.",
			build: func(t *tape) {
				for i, a := range []string{"::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"} {
					name := string(rune('a'+i)) + ".good.example"
					t.addZone(name + ". 60 IN AAAA " + a)
					t.resolve(name, dns.TypeAAAA)
				}
			},
		},
		{
			Name: "dns-local-names", Policy: everything,
			Title: "Names that mean the host, or nothing public, or a metadata service. None is asked " +
				"outside.",
			Story: "The guest asks for localhost and a name below it, a single label, printer.local, " +
				"host.docker.internal and two names of metadata services. Asked outside, they would tell " +
				"of the inside, and an answer from there could point anywhere. All are denied, as local " +
				"or as metadata names, although every public name is allowed, and the upstream resolver " +
				"hears of none.",
			build: func(t *tape) {
				for _, n := range []string{"localhost", "db.localhost", "intranet", "metadata.google.internal", "instance-data.ec2.internal", "printer.local", "host.docker.internal"} {
					t.resolve(n, dns.TypeA)
				}
			},
		},
		{
			Name: "dns-types", Policy: webOnly,
			Title: "Types that are amplifiers, transfers or carriers of arbitrary bytes, all for an " +
				"allowed name.",
			Story: "For an allowed name the guest asks types ANY, AXFR, NULL and one from the private " +
				"range. ANY makes answers large enough to flood others with, AXFR asks for a whole zone, " +
				"and the last two carry bytes of any meaning past whoever looks at addresses. No client " +
				"of a guest needs them: each is denied as invalid, and none is asked outside.",
			build: func(t *tape) {
				for _, kind := range []uint16{dns.TypeANY, dns.TypeAXFR, dns.TypeNULL, 65280} {
					t.ask(packed(question("good.example", kind, kind)))
				}
			},
		},
		{
			Name: "dns-shapes", Policy: webOnly, Odd: true,
			Story: "Messages that are no plain question: none, two, another class, an update, an answer, a compression loop, a label of 64, a name of 256, three bytes.",
			build: func(t *tape) {
				none := new(dns.Msg)
				none.Id = 1
				t.ask(packed(none))
				two := question("good.example", dns.TypeA, 2)
				two.Question = append(two.Question, two.Question[0])
				t.ask(packed(two))
				chaos := question("version.bind", dns.TypeTXT, 3)
				chaos.Question[0].Qclass = dns.ClassCHAOS
				t.ask(packed(chaos))
				update := question("good.example", dns.TypeSOA, 4)
				update.Opcode = dns.OpcodeUpdate
				t.ask(packed(update))
				answer := question("good.example", dns.TypeA, 5)
				answer.Response = true
				t.ask(packed(answer))
				head := []byte{0, 6, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
				t.ask(append(head[:12:12], 0xc0, 12, 0, 1, 0, 1))
				t.ask(append(append(append(head[:12:12], 64), strings.Repeat("a", 64)...), 0, 0, 1, 0, 1))
				long := head[:12:12]
				for range 5 {
					long = append(append(long, 51), strings.Repeat("b", 51)...)
				}
				t.ask(append(long, 0, 0, 1, 0, 1))
				t.ask([]byte{1, 2, 3})
			},
		},
		{
			Name: "dns-tunnel", Policy: webOnly,
			Story: "Data carried out in long labels and brought back in TXT, below an allowed wildcard. Each question is allowed by itself; the gateway bounds how many different names it asks outside.",
			build: func(t *tape) {
				for i := range 12 {
					label := strings.Repeat(string(rune('a'+i)), 60)
					name := label + "." + label + ".good.example"
					t.addZone(name + ". 1 IN TXT \"" + strings.Repeat("z", 200) + "\"")
					t.resolve(name, dns.TypeTXT)
				}
			},
		},
		{
			Name: "dns-gifts", Policy: webOnly,
			Title: "The answer for an allowed name brings records for another name beside it. Only what " +
				"was asked for is pinned.",
			Story: "The guest asks for good.example, and the answer brings an address for " +
				"other.good.example beside it, in two of its sections. If such gifts were pinned, one " +
				"server could speak for names that it does not own and lead an allowed name to any " +
				"address. Only what was asked for is pinned: the connection to the gift's address is " +
				"denied, as no rule covers it.",
			build: func(t *tape) {
				t.addZone("good.example. 60 IN A " + good)
				q := question("good.example", dns.TypeA, 77)
				port := t.udp(resolver, packed(q))
				m := t.answerTo(q)
				gift, err := dns.NewRR("other.good.example. 60 IN A " + evil)
				must(err)
				m.Answer = append(m.Answer, gift)
				m.Extra = append(m.Extra, gift)
				t.datagram(false, port, gatewayDNS, packed(m))
				t.dial(evil + ":443").say(helloFor("other.good.example")).Close()
			},
		},
		{
			Name: "dns-service", Policy: webOnly,
			Story: "An HTTPS record with address hints, one of them private, and an ECH configuration. The hint and ECH are taken out, the public hint pins.",
			build: func(t *tape) {
				t.addZone("good.example. 60 IN HTTPS 1 . alpn=h2 ipv4hint=93.184.215.14,10.0.0.9 ech=AEX+DQBBoQAgACDnqmuBf8mHlgTu4x+AJsNwUEtLS38/YU+L2qLFDhzfdgAEAAEAAQASY2xvdWRmbGFyZS1lY2guY29tAAA=")
				t.resolve("good.example", dns.TypeHTTPS)
				t.dial(good + ":443").say(helloFor("good.example", "h2")).Close()
				t.syn("10.0.0.9:443")
			},
		},
		{
			Name: "dns-pin-expires", Timed: true, Policy: webOnly + "\n[dns]\nmin_ttl = \"10s\"\nmax_ttl = \"30s\"\n",
			Story: "The pin of a name ends long before the guest connects to the address that it remembered. The flow is refused until the name is resolved again.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				t.dial(good + ":443").say(helloFor("good.example")).Close()
				t.wait(time.Hour)
				t.syn(good + ":443")
				t.resolve("good.example", dns.TypeA)
				t.dial(good + ":443").say(helloFor("good.example")).Close()
			},
		},
		{
			Name: "dns-case", Policy: webOnly,
			Title: "Names in mixed case are the same names.",
			Story: "The guest asks for GoOd.ExAmPlE and says GOOD.example in its TLS hello, as resolvers " +
				"that mix cases against spoofing and careless clients do. Names are the same in any " +
				"case, so a rule must neither miss a denied name nor refuse an allowed one for its " +
				"spelling. The lookup and the connection are both allowed under the rule for " +
				"good.example.",
			build: func(t *tape) {
				t.addZone("good.example. 300 IN A " + good)
				t.resolve("GoOd.ExAmPlE", dns.TypeA)
				t.dial(good + ":443").say(helloFor("GOOD.example")).Close()
			},
		},
	}
}
