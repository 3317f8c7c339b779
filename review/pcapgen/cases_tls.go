package pcapgen

import "bytes"

// tlsCases are what a guest can say in its first bytes to an address whose rule goes by name.
func tlsCases() []Case {
	all := []Case{
		{
			Name: "tls-no-sni", Story: "TLS without a server name to an address whose rules go by name.",
			build: func(t *Tape) { t.pinned().Say(hello(helloOptions{alpn: []string{"h2"}})).Close() },
		},
		{
			Name: "tls-sni-denied", Story: "A name that no rule allows, said to an address that is pinned for another: domain fronting by SNI.",
			build: func(t *Tape) { t.pinned().Say(helloFor("evil.example")).Close() },
		},
		{
			Name: "tls-sni-not-pinned", Story: "An allowed name, said to an address that was pinned for its neighbour: what the name's own zone says was never asked.",
			build: func(t *Tape) { t.pinned().Say(helloFor("www.good.example")).Close() },
		},
		{
			Name: "tls-address-unresolved", Story: "An allowed name, said to an address that was never resolved. Nothing is pinned there, so the connection is refused before its first byte.",
			build: func(t *Tape) { t.Dial(evil + ":443").Say(helloFor("good.example")).Close() },
		},
		{
			Name: "tls-two-names", Odd: true, Story: "Two entries in one server_name extension, the allowed one first: parsers disagree on which counts.",
			build: func(t *Tape) {
				t.pinned().Say(hello(helloOptions{names: []string{"good.example", "evil.example"}})).Close()
			},
		},
		{
			Name: "tls-two-extensions", Odd: true, Story: "The server_name extension twice.",
			build: func(t *Tape) {
				t.pinned().Say(hello(helloOptions{names: []string{"good.example"}, twice: true})).Close()
			},
		},
		{
			Name: "tls-ip-name", Story: "An address in the server name, which RFC 6066 forbids.",
			build: func(t *Tape) { t.pinned().Say(helloFor("93.184.215.14")).Close() },
		},
		{
			Name: "tls-20-segments", Story: "The ClientHello in twenty TCP segments, as a client with a tiny window sends it. It is read to its end and allowed.",
			build: func(t *Tape) {
				h := helloFor("good.example", "h2")
				t.pinned().Split(h, len(h)/20+1).Hear(serverSpeaks(100)).Close()
			},
		},
		{
			Name: "tls-5-records", Story: "The ClientHello spread over five TLS records, which hides the name from parsers that read the first only.",
			build: func(t *Tape) {
				msg := helloMessage(helloOptions{names: []string{"good.example"}})
				var b []byte
				for i := range 5 {
					b = append(b, record(22, msg[i*len(msg)/5:(i+1)*len(msg)/5])...)
				}
				t.pinned().Say(b).Close()
			},
		},
		{
			Name: "tls-large", Story: "A ClientHello of some 9 KiB, as post-quantum key shares and session tickets make them.",
			build: func(t *Tape) {
				t.pinned().Say(hello(helloOptions{names: []string{"good.example"}, extra: 9000})).Close()
			},
		},
		{
			Name: "tls-too-large", Story: "A ClientHello over the bound of 16 KiB: it is refused rather than read for ever.",
			build: func(t *Tape) {
				t.pinned().Say(hello(helloOptions{names: []string{"good.example"}, extra: 20000})).Close()
			},
		},
		{
			Name: "tls-ech", Story: "An encrypted ClientHello whose outer name is allowed: the name that the server will see is another.",
			build: func(t *Tape) {
				t.pinned().Say(hello(helloOptions{names: []string{"good.example"}, ech: true})).Close()
			},
		},
		{
			Name: "tls-sslv2", Story: "An SSLv2-style hello, which has no name and which no rule can be about.",
			build: func(t *Tape) {
				t.pinned().Say(append([]byte{0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10}, bytes.Repeat([]byte{1}, 37)...)).Close()
			},
		},
		{
			Name: "tls-to-port-80", Story: "TLS to port 80 of an allowed name.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				t.Dial(good + ":80").Say(helloFor("good.example", "h2")).Close()
			},
		},
		{
			Name: "tls-overlap", Odd: true, Story: "Overlapping segments: the first copy of the bytes says an allowed name, the second a denied one at the same place. The gateway judges what its own stack reads, which is what it relays.",
			build: func(t *Tape) {
				c := t.pinned()
				a, b := helloFor("good.example"), helloFor("evil.example")
				c.At(40, a[40:]).At(40, b[40:]).Say(a[:40])
				c.seq += uint32(len(a) - 40)
				c.Close()
			},
		},
		{
			Name: "tls-out-of-order", Odd: true, Story: "The second half of the ClientHello comes before the first.",
			build: func(t *Tape) {
				c := t.pinned()
				h := helloFor("good.example")
				c.At(100, h[100:]).Say(h[:100])
				c.seq += uint32(len(h) - 100)
				c.Close()
			},
		},
		{
			Name: "tls-silent", Story: "A client that connects, says nothing and leaves: nothing is dialled for it.",
			build: func(t *Tape) { t.pinned().Close() },
		},
		{
			Name: "tls-garbage", Story: "Bytes that are neither TLS nor HTTP where the rule allows TLS only.",
			build: func(t *Tape) { t.pinned().Say([]byte("\x00\x01\x02\x03 not a protocol\n")).Close() },
		},
		{
			Name: "quic", Story: "QUIC to an allowed name under a rule for TLS.",
			build: func(t *Tape) {
				t.Lookup("good.example", good)
				t.UDP(good+":443", append([]byte{0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x44, 0x96}, make([]byte, 1182)...))
			},
		},
	}
	for i := range all {
		all[i].Policy = webOnly
	}
	return all
}

// pinned resolves good.example and connects to it.
func (t *Tape) pinned() *Conn {
	t.Lookup("good.example", good)
	return t.Dial(good + ":443")
}
