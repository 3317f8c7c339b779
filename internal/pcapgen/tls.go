package pcapgen

import "bytes"

// helloOptions shape a ClientHello.
type helloOptions struct {
	names []string // in one server_name extension; none leaves it out
	alpn  []string
	ech   bool
	extra int // bytes of an unknown extension, as post-quantum shares make hellos large
	twice bool
}

// hello is a TLS 1.3 ClientHello in one record, with fixed bytes where clients have random ones.
func hello(o helloOptions) []byte {
	return record(22, helloMessage(o))
}

func helloFor(name string, alpn ...string) []byte {
	return hello(helloOptions{names: []string{name}, alpn: alpn})
}

func record(kind byte, body []byte) []byte {
	var b []byte
	for first := true; first || len(body) > 0; first = false {
		part := body[:min(len(body), 1<<14)]
		body = body[len(part):]
		b = append(append(append(b, kind, 3, 1), be16(len(part))...), part...)
	}
	return b
}

func helloMessage(o helloOptions) []byte {
	body := append([]byte{3, 3}, bytes.Repeat([]byte{0x5a}, 32)...)
	body = append(append(body, 32), bytes.Repeat([]byte{0xa5}, 32)...)
	body = append(body, 0, 6, 0x13, 1, 0x13, 2, 0x13, 3)
	body = append(body, 1, 0)
	var exts []byte
	if len(o.names) > 0 {
		exts = append(exts, extension(0, serverNames(o.names))...)
	}
	if o.twice {
		exts = append(exts, extension(0, serverNames(o.names[:1]))...)
	}
	if len(o.alpn) > 0 {
		var list []byte
		for _, p := range o.alpn {
			list = append(append(list, byte(len(p))), p...)
		}
		exts = append(exts, extension(16, sized(list))...)
	}
	exts = append(exts, extension(43, []byte{4, 3, 4, 3, 3})...)           // supported_versions
	exts = append(exts, extension(13, sized([]byte{4, 3, 8, 4, 4, 1}))...) // signature_algorithms
	exts = append(exts, extension(10, sized([]byte{0, 29, 0, 23}))...)     // supported_groups
	share := append([]byte{0, 29, 0, 32}, bytes.Repeat([]byte{9}, 32)...)  // x25519
	exts = append(exts, extension(51, sized(share))...)                    // key_share
	if o.ech {
		ech := append([]byte{0, 0, 1, 0, 1, 7}, sized(bytes.Repeat([]byte{3}, 32))...) // outer, KDF, AEAD, config id, enc
		exts = append(exts, extension(0xfe0d, append(ech, sized(bytes.Repeat([]byte{4}, 64))...))...)
	}
	if o.extra > 0 {
		exts = append(exts, extension(21, make([]byte, o.extra))...) // padding
	}
	body = append(append(body, be16(len(exts))...), exts...)
	return append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

func sized(b []byte) []byte { return append(be16(len(b)), b...) }

func extension(kind int, body []byte) []byte {
	return append(be16(kind), sized(body)...)
}

func serverNames(names []string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, 0), sized([]byte(n))...)
	}
	return sized(list)
}

// serverSpeaks stands for the server's side of a handshake and what follows, as opaque records.
func serverSpeaks(n int) []byte { return record(23, bytes.Repeat([]byte{0xee}, n)) }

// clientSpeaks stands for encrypted data of the client.
func clientSpeaks(n int) []byte { return record(23, bytes.Repeat([]byte{0xdd}, n)) }

// visit resolves name, connects to it with TLS and exchanges some data.
func (t *tape) visit(name, addr string, alpn ...string) {
	t.lookup(name, addr)
	c := t.dial(netip443(addr))
	c.say(helloFor(name, alpn...)).hear(serverSpeaks(1800)).say(clientSpeaks(200)).hear(serverSpeaks(900)).Close()
}

func netip443(addr string) string {
	if bytes.IndexByte([]byte(addr), ':') >= 0 {
		return "[" + addr + "]:443"
	}
	return addr + ":443"
}
