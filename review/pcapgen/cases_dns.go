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
			Story: "Two allowed names and one that is not, over UDP. The third is refused with a reason and nothing is asked outside.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				t.Lookup("www.good.example", good)
				t.Lookup("evil.example", evil)
			},
		},
		{
			Name: "dns-tcp", Policy: webOnly,
			Story: "Two questions on one TCP connection, in one segment, with the answers behind each other.",
			build: func(t *Tape) {
				t.Zone("good.example. 300 IN A "+good, "evil.example. 300 IN A "+evil)
				a, b := question("good.example", dns.TypeA, 1), question("evil.example", dns.TypeA, 2)
				c := t.Dial(resolver)
				c.Say(append(framed(packed(a)), framed(packed(b))...))
				c.Hear(append(framed(packed(t.answerTo(a))), framed(packed(t.answerTo(b)))...)).Close()
				t.Dial(good + ":443").Say(helloFor("good.example", "h2")).Close()
			},
		},
		{
			Name: "dns-other-resolver", Policy: webOnly,
			Story: "The guest asks public resolvers at their own addresses. The gateway answers itself, whatever the destination, and nothing is sent to them.",
			build: func(t *Tape) {
				t.Zone("good.example. 300 IN A "+good, "evil.example. 300 IN A "+evil)
				t.ResolveAt("8.8.8.8:53", "good.example", dns.TypeA)
				t.ResolveAt("1.1.1.1:53", "evil.example", dns.TypeA)
				t.ResolveAt("[2606:4700:4700::1111]:53", "evil.example", dns.TypeAAAA)
			},
		},
		{
			Name: "dns-tls", Policy: everything,
			Story: "DNS over TLS to a public resolver, by address and by name: it would go around the sandbox's own, so it is shut even where everything public is open.",
			build: func(t *Tape) {
				t.SYN("1.1.1.1:853")
				t.Lookup("dns.google", "8.8.8.8")
				t.Dial("8.8.8.8:853").Say(helloFor("dns.google", "dot")).Close()
			},
		},
		{
			Name: "dns-https", Policy: everything,
			Story: "DNS over HTTPS to a public resolver, by name and by address.",
			build: func(t *Tape) {
				t.Visit("dns.google", "8.8.4.4", "h2")
				t.Dial("1.1.1.1:443").Say(helloFor("cloudflare-dns.com", "h2")).Close()
			},
		},
		{
			Name: "dns-local-announcements", Policy: everything,
			Story: "mDNS, LLMNR and NetBIOS announce to a local network that is not there. They vanish without an error, or clients would only log.",
			build: func(t *Tape) {
				q := packed(question("printer.local", dns.TypeA, 0))
				t.UDP("45.33.32.156:5353", q)
				t.UDP("45.33.32.156:5355", q)
				t.UDP("45.33.32.156:137", make([]byte, 50))
			},
		},
		{
			Name: "dns-rebinding", Policy: webOnly,
			Story: "An allowed name whose zone is the attacker's resolves to loopback, a private address and a metadata service. The answers are refused, and connecting there fails by class.",
			build: func(t *Tape) {
				t.Lookup("a.good.example", "127.0.0.1")
				t.Lookup("b.good.example", "10.0.0.5")
				t.Lookup("c.good.example", "169.254.169.254")
				t.Dial("127.0.0.1:443").Say(helloFor("a.good.example")).Close()
				t.Dial("169.254.169.254:80").Say(get("c.good.example", "/latest/meta-data/")).Close()
			},
		},
		{
			Name: "dns-rebinding-later", Timed: true, Policy: webOnly,
			Story: "The name is public at first and private at the second lookup, with a TTL of 0 in between, as rebinding attacks have it. The pin of the first answer stands; the second brings nothing.",
			build: func(t *Tape) {
				t.Zone("flip.good.example. 0 IN A " + good)
				t.Resolve("flip.good.example", dns.TypeA)
				t.Dial(good + ":443").Say(helloFor("flip.good.example")).Close()
				t.Wait(2 * time.Second)
				t.zone["flip.good.example."] = []string{"flip.good.example. 0 IN A 10.1.2.3"}
				t.Resolve("flip.good.example", dns.TypeA)
				t.Dial("10.1.2.3:443").Say(helloFor("flip.good.example")).Close()
			},
		},
		{
			Name: "dns-mixed", Policy: webOnly,
			Story: "One answer with a public and a private address: the private one is taken out, the public one pinned.",
			build: func(t *Tape) {
				t.Zone("mixed.good.example. 60 IN A "+good, "mixed.good.example. 60 IN A 192.168.1.1")
				t.Resolve("mixed.good.example", dns.TypeA)
				t.SYN("192.168.1.1:443")
				t.Dial(good + ":443").Say(helloFor("mixed.good.example")).Close()
			},
		},
		{
			Name: "dns-cname-internal", Policy: webOnly,
			Story: "An allowed name is an alias of a name that means the inside: the chain is refused though its address is public.",
			build: func(t *Tape) {
				t.Zone("alias.good.example. 60 IN CNAME metadata.google.internal.", "metadata.google.internal. 60 IN A "+evil)
				t.Resolve("alias.good.example", dns.TypeA)
				t.Dial(evil + ":443").Say(helloFor("alias.good.example")).Close()
			},
		},
		{
			Name: "dns-aaaa-forms", Policy: webOnly,
			Story: "AAAA answers that carry loopback inside: mapped, NAT64 and 6to4.",
			build: func(t *Tape) {
				for i, a := range []string{"::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"} {
					name := string(rune('a'+i)) + ".good.example"
					t.Zone(name + ". 60 IN AAAA " + a)
					t.Resolve(name, dns.TypeAAAA)
				}
			},
		},
		{
			Name: "dns-local-names", Policy: everything,
			Story: "Names that mean the host, or nothing public, or a metadata service. None is asked outside.",
			build: func(t *Tape) {
				for _, n := range []string{"localhost", "db.localhost", "intranet", "metadata.google.internal", "instance-data.ec2.internal", "printer.local", "host.docker.internal"} {
					t.Resolve(n, dns.TypeA)
				}
			},
		},
		{
			Name: "dns-types", Policy: webOnly,
			Story: "Types that are amplifiers, transfers or carriers of arbitrary bytes, all for an allowed name.",
			build: func(t *Tape) {
				for _, kind := range []uint16{dns.TypeANY, dns.TypeAXFR, dns.TypeNULL, 65280} {
					t.Ask(packed(question("good.example", kind, kind)))
				}
			},
		},
		{
			Name: "dns-shapes", Policy: webOnly, Odd: true,
			Story: "Messages that are no plain question: none, two, another class, an update, an answer, a compression loop, a label of 64, a name of 256, three bytes.",
			build: func(t *Tape) {
				none := new(dns.Msg)
				none.Id = 1
				t.Ask(packed(none))
				two := question("good.example", dns.TypeA, 2)
				two.Question = append(two.Question, two.Question[0])
				t.Ask(packed(two))
				chaos := question("version.bind", dns.TypeTXT, 3)
				chaos.Question[0].Qclass = dns.ClassCHAOS
				t.Ask(packed(chaos))
				update := question("good.example", dns.TypeSOA, 4)
				update.Opcode = dns.OpcodeUpdate
				t.Ask(packed(update))
				answer := question("good.example", dns.TypeA, 5)
				answer.Response = true
				t.Ask(packed(answer))
				head := []byte{0, 6, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
				t.Ask(append(head[:12:12], 0xc0, 12, 0, 1, 0, 1))
				t.Ask(append(append(append(head[:12:12], 64), strings.Repeat("a", 64)...), 0, 0, 1, 0, 1))
				long := head[:12:12]
				for range 5 {
					long = append(append(long, 51), strings.Repeat("b", 51)...)
				}
				t.Ask(append(long, 0, 0, 1, 0, 1))
				t.Ask([]byte{1, 2, 3})
			},
		},
		{
			Name: "dns-tunnel", Policy: webOnly,
			Story: "Data carried out in long labels and brought back in TXT, below an allowed wildcard. Each question is allowed by itself; the gateway bounds how many different names it asks outside.",
			build: func(t *Tape) {
				for i := range 12 {
					label := strings.Repeat(string(rune('a'+i)), 60)
					name := label + "." + label + ".good.example"
					t.Zone(name + ". 1 IN TXT \"" + strings.Repeat("z", 200) + "\"")
					t.Resolve(name, dns.TypeTXT)
				}
			},
		},
		{
			Name: "dns-gifts", Policy: webOnly,
			Story: "The answer for an allowed name brings records for another name beside it. Only what was asked for is pinned.",
			build: func(t *Tape) {
				t.Zone("good.example. 60 IN A " + good)
				q := question("good.example", dns.TypeA, 77)
				port := t.UDP(resolver, packed(q))
				m := t.answerTo(q)
				gift, err := dns.NewRR("other.good.example. 60 IN A " + evil)
				must(err)
				m.Answer = append(m.Answer, gift)
				m.Extra = append(m.Extra, gift)
				t.datagram(false, port, gatewayDNS, packed(m))
				t.Dial(evil + ":443").Say(helloFor("other.good.example")).Close()
			},
		},
		{
			Name: "dns-service", Policy: webOnly,
			Story: "An HTTPS record with address hints, one of them private, and an ECH configuration. The hint and ECH are taken out, the public hint pins.",
			build: func(t *Tape) {
				t.Zone("good.example. 60 IN HTTPS 1 . alpn=h2 ipv4hint=93.184.215.14,10.0.0.9 ech=AEX+DQBBoQAgACDnqmuBf8mHlgTu4x+AJsNwUEtLS38/YU+L2qLFDhzfdgAEAAEAAQASY2xvdWRmbGFyZS1lY2guY29tAAA=")
				t.Resolve("good.example", dns.TypeHTTPS)
				t.Dial(good + ":443").Say(helloFor("good.example", "h2")).Close()
				t.SYN("10.0.0.9:443")
			},
		},
		{
			Name: "dns-pin-expires", Timed: true, Policy: webOnly + "\n[dns]\nmin_ttl = \"10s\"\nmax_ttl = \"30s\"\n",
			Story: "The pin of a name ends long before the guest connects to the address that it remembered. The flow is refused until the name is resolved again.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				t.Dial(good + ":443").Say(helloFor("good.example")).Close()
				t.Wait(time.Hour)
				t.SYN(good + ":443")
				t.Resolve("good.example", dns.TypeA)
				t.Dial(good + ":443").Say(helloFor("good.example")).Close()
			},
		},
		{
			Name: "dns-case", Policy: webOnly,
			Story: "Names in mixed case and with a trailing dot are the same names.",
			build: func(t *Tape) {
				t.Zone("good.example. 300 IN A " + good)
				t.Resolve("GoOd.ExAmPlE", dns.TypeA)
				t.Dial(good + ":443").Say(helloFor("GOOD.example")).Close()
			},
		},
	}
}
