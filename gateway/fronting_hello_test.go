package gateway_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/crypto/cryptobyte"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// ext is one extension of a hello.
type ext struct {
	typ  uint16
	body string
}

// names is a server_name extension; each entry is a type and a name.
func names(entries ...string) ext {
	var b cryptobyte.Builder
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, e := range entries {
			b.AddUint8(e[0])
			b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(e[1:])) })
		}
	})
	return ext{0, string(b.BytesOrPanic())}
}

// handshake is a ClientHello without a record.
func handshake(exts ...ext) string {
	var b cryptobyte.Builder
	b.AddUint8(1)
	b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddBytes([]byte("\x03\x03" + strings.Repeat("r", 32) + "\x00\x00\x02\x13\x01\x01\x00"))
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for _, e := range append(exts, ext{43, "\x02\x03\x04"}) {
				b.AddUint16(e.typ)
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(e.body)) })
			}
		})
	})
	return string(b.BytesOrPanic())
}

// record is one TLS record.
func record(typ uint8, body string) string {
	b := cryptobyte.NewBuilder([]byte{typ, 3, 1})
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes([]byte(body)) })
	return string(b.BytesOrPanic())
}

// Each hello is written byte by byte as it stands here. Where only names decide and nobody looks into TLS, it reaches
// the server as it was sent or not at all, and by the allowed name alone.
func TestI7_RawHellosDontFront(t *testing.T) {
	t.Parallel()
	const www, evil = "\x00www.example.com", "\x00evil.example.com"
	const grease = "\x00\x00\x01\x00\x01\x07\x00\x04kkkk\x00\x08pppppppp" // ECH: outer, suite, id, key, payload
	hello := func(exts ...ext) string { return record(22, handshake(exts...)) }
	whole := handshake(names(www))
	sslv2 := "\x80\x2e\x01\x03\x01\x00\x15\x00\x00\x00\x10\x00\x00\x2f\x00\x00\x35\x00\x00\x0a\x01\x00\x80\x07\x00\xc0\x03\x00\x80" + strings.Repeat("c", 16)
	for name, tt := range map[string]struct {
		sent   string
		passes bool
	}{
		allowed:                    {hello(names(www)), true},
		"upper case":               {hello(names("\x00WWW.example.COM")), true},
		"trailing dot":             {hello(names(www + ".")), true},
		"early data":               {hello(names(www), ext{42, ""}) + record(23, "early"), true},
		"two records":              {record(22, whole[:20]) + record(22, whole[20:]), true},
		"long padding":             {hello(names(www), ext{21, strings.Repeat("\x00", 12<<10)}), true},
		"unknown extension":        {hello(ext{0x4a4a, ""}, names(www), ext{0x5a5a, "x"}), true},
		"an empty unknown last":    {hello(names(www), ext{0xffff, ""}), true},
		"records behind it":        {hello(names(www)) + record(20, "\x01"), true},
		"denied":                   {hello(names(evil)), false},
		"denied, upper case":       {hello(names("\x00EVIL.example.com")), false},
		"denied, trailing dot":     {hello(names(evil + ".")), false},
		"denied, early data":       {hello(names(evil), ext{42, ""}) + record(23, "early"), false},
		"two dots at the end":      {hello(names(www + "..")), false},
		"ECH":                      {hello(names(www), ext{0xfe0d, grease}), false},
		"ECH before the name":      {hello(ext{0xfe0d, grease}, names(www)), false},
		"ECH, denied outside":      {hello(names(evil), ext{0xfe0d, grease}), false},
		"ECH without a name":       {hello(ext{0xfe0d, grease}), false},
		"ECH, empty":               {hello(names(www), ext{0xfe0d, ""}), false},
		"ECH twice":                {hello(names(www), ext{0xfe0d, "\x01"}, ext{0xfe0d, grease}), false},
		"no name":                  {hello(), false},
		"an address":               {hello(names("\x00" + site)), false},
		"an address of IPv6":       {hello(names("\x00[2001:db8::1]")), false},
		"an empty name":            {hello(names("\x00")), false},
		"an empty list":            {hello(names()), false},
		"an empty extension":       {hello(ext{0, ""}), false},
		"two entries":              {hello(names(www, evil)), false},
		"two entries, turned":      {hello(names(evil, www)), false},
		"an empty entry first":     {hello(names("\x00", www)), false},
		"the same entry twice":     {hello(names(www, www)), false},
		"another type of name":     {hello(names("\x01www.example.com")), false},
		"another type first":       {hello(names("\x01evil.example.com", www)), false},
		"two extensions":           {hello(names(www), names(evil)), false},
		"two extensions, turned":   {hello(names(evil), names(www)), false},
		"ALPN twice":               {hello(names(www), ext{16, "\x00\x03\x02h2"}, ext{16, "\x00\x03\x02h2"}), false},
		"an extension twice":       {hello(names(www), ext{21, ""}, ext{21, ""}), false},
		"NUL":                      {hello(names(www + "\x00.evil.example.com")), false},
		"beyond ASCII":             {hello(names("\x00www\xe3\x80\x82example.com")), false},
		"a blank":                  {hello(names(www + " ")), false},
		"with a port":              {hello(names(www + ":443")), false},
		"a long list":              {hello(ext{0, names(www).body + "x"}), false},
		"two hellos, one record":   {record(22, whole+handshake(names(evil))), false},
		"an alert inside":          {record(22, whole[:20]) + record(21, "\x01\x00") + record(22, whole[20:]), false},
		"an alert first":           {record(21, "\x01\x00") + record(22, whole), false},
		"an empty record first":    {record(22, "") + record(22, whole), false},
		"SSLv2":                    {sslv2, false},
		"SSLv2, and a hello":       {sslv2 + hello(names(www)), false},
		"a line end first":         {"\r\n" + hello(names(www)), false},
		"no hello":                 {record(22, "\x02"+whole[1:]), false},
		"cut":                      {hello(names(www))[:40], false},
		"over 16 KiB":              {hello(names(www), ext{21, strings.Repeat("\x00", 15<<10)})[:5] + strings.Repeat("\x01", 17<<10), false},
		"many records":             {strings.Repeat(record(22, "\x01"), 80), false},
		"a name behind other data": {record(23, "data") + hello(names(www)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const tls = "protocol = \"tls\"\nports = [443]\n"
			rule := strings.ReplaceAll(allowWWW, "www.ex", "*.ex") + tls
			got := helloTo(t, rule+denyEvil, tt.sent)
			if tt.passes && got != tt.sent {
				t.Errorf("the server got %q of %q", got, tt.sent)
			}
			if !tt.passes && got != "" {
				t.Errorf("the server got %q", got)
			}
			if got := helloTo(t, opaqueFront, tt.sent); got != tt.sent {
				t.Errorf("where nothing is denied, the server got %q", got)
			}
		})
	}
}

// helloTo writes a client's first bytes to www.example.com, and returns what its server got.
func helloTo(t *testing.T, policy, sent string) string {
	t.Helper()
	w := gatewaytest.Start(t, policy)
	w.Record(strings.Split(frontNames, "\n")...)
	got := make(chan string, 1)
	w.Serve(site+":443", func(c net.Conn) {
		b, _ := io.ReadAll(c)
		got <- string(b)
	})
	for _, name := range []string{"evil.example.com", "www.example.com"} {
		w.Resolve(name, dns.TypeA)
	}
	c, err := w.Dial(siteAddr, 443)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	_, _ = io.WriteString(c, sent) // a refusal may come before everything is written
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, c) // until the server, or the gateway, has ended it
	w.Close()
	if len(w.Dialled()) == 0 {
		return ""
	}
	return <-got
}
