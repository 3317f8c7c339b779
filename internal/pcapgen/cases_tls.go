package pcapgen

import (
	"bytes"
	"time"
)

// tlsCases are what a guest can say in its first bytes to an address whose rule goes by name.
func tlsCases() []Case {
	all := []Case{
		{
			Name:  "tls-no-sni",
			Title: "TLS without a server name to an address whose rules go by name.",
			Story: "After resolving good.example the guest sends it a TLS hello without a server name. " +
				"An address of a large host stands for many sites, and without a name there is no " +
				"telling which one the guest wants or what the server will take it for. The rule goes by " +
				"name, so the connection is denied for having none, before anything is dialled.",
			build: func(t *tape) { t.pinned().say(hello(helloOptions{alpn: []string{"h2"}})).Close() },
		},
		{
			Name: "tls-sni-denied",
			Title: "A name that no rule allows, said to an address that is pinned for another: domain " +
				"fronting by SNI.",
			Story: "The guest resolves good.example, connects to its address and says evil.example in " +
				"the TLS hello. Where both are customers of one host, a filter that trusts the address " +
				"would carry the session to the attacker's site: domain fronting by SNI. No rule allows " +
				"that name, so the connection is denied and the server is never dialled.",
			build: func(t *tape) { t.pinned().say(helloFor("evil.example")).Close() },
		},
		{
			Name: "tls-sni-not-pinned",
			Title: "An allowed name, said to an address that was pinned for its neighbour: what the " +
				"name's own zone says was never asked.",
			Story: "The guest resolves good.example and says www.good.example to its address. The rule's " +
				"wildcard allows that name too, but nobody asked its zone where it lives, so an attacker " +
				"could take an allowed name to an address of their own choosing. The connection is " +
				"denied because the name is not pinned there, and nothing is dialled.",
			build: func(t *tape) { t.pinned().say(helloFor("www.good.example")).Close() },
		},
		{
			Name: "tls-address-unresolved",
			Title: "An allowed name, said to an address that was never resolved. Nothing is pinned " +
				"there, so the connection is refused before its first byte.",
			Story: "Without any lookup the guest connects to an address of the attacker's and says " +
				"good.example in its hello. A name in a hello is only what the client claims, so a " +
				"filter that goes by it alone sends data to whoever holds the address. Nothing is pinned " +
				"there: no rule covers the address, so the connection is denied at its SYN, and nothing " +
				"leaves.",
			build: func(t *tape) { t.dial(evil + ":443").say(helloFor("good.example")).Close() },
		},
		{
			Name: "tls-two-names", Odd: true,
			Title: "Two entries in one server_name extension, the allowed one first: parsers disagree on " +
				"which counts.",
			Story: "One server_name extension has two entries, good.example and then evil.example, which " +
				"RFC 6066 does not allow for names of one type. A filter that reads the first and a " +
				"server that reads the last would judge and serve different sites. The hello is denied " +
				"as unreadable rather than taken in either way, and nothing is dialled.",
			build: func(t *tape) {
				t.pinned().say(hello(helloOptions{names: []string{"good.example", "evil.example"}})).Close()
			},
		},
		{
			Name: "tls-two-extensions", Odd: true,
			Title: "The server_name extension twice.",
			Story: "The hello has the server_name extension twice, both times with the allowed name. " +
				"Parsers disagree on which of two extensions counts, so a filter that accepted the " +
				"doubling could be shown one name while the server obeys another. Even with equal names " +
				"the hello is denied as unreadable, as TLS forbids it, and the server is not dialled.",
			build: func(t *tape) {
				t.pinned().say(hello(helloOptions{names: []string{"good.example"}, twice: true})).Close()
			},
		},
		{
			Name:  "tls-ip-name",
			Title: "An address in the server name, which RFC 6066 forbids.",
			Story: "The hello's server name is 93.184.215.14, the address itself, where RFC 6066 wants a " +
				"host name. Treated as a name it could match by accident, and a server would answer with " +
				"whatever site is its default, about which the rule says nothing. The hello is denied as " +
				"unreadable although the address is pinned, and nothing is dialled.",
			build: func(t *tape) { t.pinned().say(helloFor("93.184.215.14")).Close() },
		},
		{
			Name: "tls-20-segments",
			Title: "The ClientHello in twenty TCP segments, as a client with a tiny window sends it. It " +
				"is read to its end and allowed.",
			Story: "The ClientHello comes in twenty TCP segments of ten bytes at most, as from a client " +
				"with a tiny window. A filter that looks at the first segment only finds no name in it, " +
				"and then either blocks an honest client or lets everything through. The hello is put " +
				"together to its end, the name found and allowed, and the server dialled.",
			build: func(t *tape) {
				h := helloFor("good.example", "h2")
				t.pinned().split(h, len(h)/20+1).hear(serverSpeaks(100)).Close()
			},
		},
		{
			Name: "tls-5-records",
			Title: "The ClientHello spread over five TLS records, which hides the name from parsers that " +
				"read the first only.",
			Story: "One ClientHello is spread over five TLS records in one segment, which the protocol " +
				"permits. Parsers that read only the first record miss the name, so this is a known way " +
				"around filters by name. Here the records are joined before reading: the name is " +
				"good.example, pinned at that address, so the connection is allowed and dialled.",
			build: func(t *tape) {
				msg := helloMessage(helloOptions{names: []string{"good.example"}})
				var b []byte
				for i := range 5 {
					b = append(b, record(22, msg[i*len(msg)/5:(i+1)*len(msg)/5])...)
				}
				t.pinned().say(b).Close()
			},
		},
		{
			Name: "tls-large",
			Title: "A ClientHello of some 9 KiB, as post-quantum key shares and session tickets make " +
				"them.",
			Story: "A ClientHello has some 9 KiB, as post-quantum key shares and session tickets make " +
				"them large, and takes several segments. Honest clients send such hellos more and more, " +
				"so a bound that is too tight would break them one update after another. It is below the " +
				"bound of 16 KiB: its name is read and allowed, and the server is dialled.",
			build: func(t *tape) {
				t.pinned().say(hello(helloOptions{names: []string{"good.example"}, extra: 9000})).Close()
			},
		},
		{
			Name:  "tls-too-large",
			Title: "A ClientHello over the bound of 16 KiB: it is refused rather than read for ever.",
			Story: "A ClientHello has some 20 KiB, in two TLS records, and goes beyond the bound of 16 " +
				"KiB. Without a bound a guest could have the gateway keep megabytes for each connection " +
				"while it looks for the hello's end. Its name stands at the front and is an allowed one, " +
				"yet the hello is denied as unreadable, and nothing is dialled.",
			build: func(t *tape) {
				t.pinned().say(hello(helloOptions{names: []string{"good.example"}, extra: 20000})).Close()
			},
		},
		{
			Name: "tls-ech",
			Title: "An encrypted ClientHello whose outer name is allowed: the name that the server will " +
				"see is another.",
			Story: "The hello says good.example in clear and has an encrypted ClientHello beside it, as " +
				"browsers send with ECH. The server goes by the inner name, which nobody on the way can " +
				"read, so an allowed outer name would be a cover for any site of the same host. The " +
				"connection is denied for the extension, and the server sees none of it.",
			build: func(t *tape) {
				t.pinned().say(hello(helloOptions{names: []string{"good.example"}, ech: true})).Close()
			},
		},
		{
			Name:  "tls-sslv2",
			Title: "An SSLv2-style hello, which has no name and which no rule can be about.",
			Story: "The guest opens with a hello in the format of SSLv2, which has no place for a server " +
				"name. Old servers still answer it with a session of a later version, so it would be a " +
				"way to reach an allowed address without saying whom one wants. The bytes are not TLS as " +
				"the rule means it: the connection is denied as a mismatch of protocol.",
			build: func(t *tape) {
				t.pinned().say(append([]byte{0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10}, bytes.Repeat([]byte{1}, 37)...)).Close()
			},
		},
		{
			Name:  "tls-to-port-80",
			Title: "TLS to port 80 of an allowed name.",
			Story: "The guest speaks TLS to port 80 of an allowed name, where most programs speak HTTP. " +
				"What counts is what is said and not the port's habit: a filter that expected HTTP there " +
				"would fail on the first byte or let it pass unread. The rule has both ports for TLS, so " +
				"the hello's name is checked as on 443, allowed and dialled.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				t.dial(good + ":80").say(helloFor("good.example", "h2")).Close()
			},
		},
		{
			Name: "tls-overlap", Odd: true, Story: "Overlapping segments: the first copy of the bytes says an allowed name, the second a denied one at the same place. The gateway judges what its own stack reads, which is what it relays.",
			build: func(t *tape) {
				c := t.pinned()
				a, b := helloFor("good.example"), helloFor("evil.example")
				c.at(40, a[40:]).at(40, b[40:]).say(a[:40])
				c.seq += uint32(len(a) - 40)
				c.Close()
			},
		},
		{
			Name: "tls-out-of-order", Odd: true,
			Title: "The second half of the ClientHello comes before the first.",
			Story: "The part of the ClientHello from byte 100 on arrives before the first hundred bytes, " +
				"as packets on real networks sometimes do. A filter that reads segments in the order of " +
				"arrival finds no hello and no name. The stream is put in order before it is read: the " +
				"name is good.example, and the connection is allowed and dialled.",
			build: func(t *tape) {
				c := t.pinned()
				h := helloFor("good.example")
				c.at(100, h[100:]).say(h[:100])
				c.seq += uint32(len(h) - 100)
				c.Close()
			},
		},
		{
			Name:  "tls-silent",
			Title: "A client that connects, says nothing and leaves: nothing is dialled for it.",
			Story: "A client connects to an allowed address, says nothing and closes, as port probes and " +
				"prepared connections do. If the gateway dialled on the handshake alone, the guest could " +
				"make contact without ever naming whom it wants, and learn which ports are open. No " +
				"hello came, so the flow is denied as a mismatch of protocol, and nothing is dialled.",
			build: func(t *tape) { t.pinned().Close() },
		},
		{
			Name: "tls-slow-hello", Timed: true,
			Title: "A ClientHello that comes a byte a second.",
			Story: "A client sends its ClientHello a byte a second, for three minutes and more. Whoever waits for the end holds a " +
				"place and a timer for each such connection, and whoever gives up early and lets it through has judged " +
				"nothing. The gateway waits ten seconds for what decides, then denies, and so does the review. " +
				"Replayed without the pauses, the bytes are an ordinary hello, which is allowed and dialled.",
			build: func(t *tape) {
				c := t.pinned()
				for _, b := range helloFor("good.example", "h2") {
					t.wait(time.Second)
					c.say([]byte{b})
				}
				c.Close()
			},
		},
		{
			Name: "tls-odd-names", Odd: true,
			Title: "Seven server names that are nearly the allowed one.",
			Story: "Seven hellos say names that some reader takes for good.example or for its wildcard: with a dot behind, with a " +
				"star, with a NUL and another name behind it, with a space, empty, in full-width letters, and with an underscore " +
				"below the wildcard. Servers in C stop at the NUL, others trim or fold. What is not a host name in ASCII is " +
				"unreadable, the last is not pinned at the address, and only the dot behind, which means the same " +
				"host to everyone, is allowed.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				for _, name := range []string{"good.example.", "*.good.example", "good.example\x00.evil.example", "good.example ", "", "ｇｏｏｄ.example", "a_b.good.example"} {
					t.dial(good + ":443").say(helloFor(name)).Close()
				}
			},
		},
		{
			Name:  "tls-garbage",
			Title: "Bytes that are neither TLS nor HTTP where the rule allows TLS only.",
			Story: "To an allowed name the guest sends twenty bytes that are neither TLS nor HTTP, as a " +
				"home-made protocol of malware might begin. A rule for TLS would be a rule for anything " +
				"if unknown bytes were passed on for the server to sort out. The connection is denied as " +
				"a mismatch of protocol, and the server is not dialled.",
			build: func(t *tape) { t.pinned().say([]byte("\x00\x01\x02\x03 not a protocol\n")).Close() },
		},
		{
			Name:  "quic",
			Title: "QUIC to an allowed name under a rule for TLS.",
			Story: "After resolving an allowed name the guest sends a QUIC Initial packet to UDP port " +
				"443 of its address. QUIC wraps the hello in encryption that differs with each version, " +
				"so a name in it is not there to be checked before data flows. The rule is for TLS over " +
				"TCP: the datagram is denied as QUIC and not sent on, and clients fall back.",
			build: func(t *tape) {
				t.lookup("good.example", good)
				t.udp(good+":443", append([]byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96}, make([]byte, 1182)...))
			},
		},
	}
	for i := range all {
		all[i].Policy = webOnly
	}
	return all
}

// pinned resolves good.example and connects to it.
func (t *tape) pinned() *conn {
	t.lookup("good.example", good)
	return t.dial(good + ":443")
}
