package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// foreign builds captures as other tools write them, in either byte order.
type foreign struct {
	o binary.AppendByteOrder
	b []byte
}

func (f *foreign) u16(v ...uint16) (b []byte) {
	for _, v := range v {
		b = f.o.AppendUint16(b, v)
	}
	return b
}

func (f *foreign) u32(v ...uint32) (b []byte) {
	for _, v := range v {
		b = f.o.AppendUint32(b, v)
	}
	return b
}

// block adds a block, padded.
func (f *foreign) block(kind uint32, parts ...[]byte) *foreign {
	body := bytes.Join(parts, nil)
	body = append(body, make([]byte, -len(body)&3)...)
	n := uint32(len(body) + blockOverhead)
	f.b = append(append(append(f.b, f.u32(kind, n)...), body...), f.u32(n)...)
	return f
}

func (f *foreign) option(code uint16, value string) []byte {
	b := append(f.u16(code, uint16(len(value))), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

func (f *foreign) section(options ...[]byte) *foreign {
	return f.block(blockSection, f.u32(byteOrderMagic), f.u16(1, 0), f.u32(1<<32-1, 1<<32-1), bytes.Join(options, nil))
}

func (f *foreign) iface(link uint16, snap uint32, options ...[]byte) *foreign {
	return f.block(blockInterface, f.u16(link, 0), f.u32(snap), bytes.Join(options, nil))
}

func (f *foreign) packet(iface, time, have, length uint32, data string, options ...[]byte) *foreign {
	data += strings.Repeat("\x00", -len(data)&3)
	return f.block(blockPacket, f.u32(iface, 0, time, have, length), []byte(data), bytes.Join(options, nil))
}

// records are those of b, a line for each, and the error at the end.
func records(b []byte) string {
	var out []string
	r, err := NewReader(bytes.NewReader(b))
	for err == nil {
		var rec *Record
		if rec, err = r.Next(); err != nil {
			break
		}
		switch rec.Kind {
		case PacketRecord:
			out = append(out, fmt.Sprintf("%d %v %q of %d %q lost %d", rec.Time, rec.Direction, rec.Frame, rec.Length, rec.Comments, rec.Lost))
		case NameRecord:
			out = append(out, fmt.Sprint(rec.Addr, " ", rec.Names))
		case KeysRecord:
			out = append(out, fmt.Sprintf("keys %q", rec.Keys))
		}
	}
	if r != nil {
		if _, again := r.Next(); again == nil || again.Error() != err.Error() {
			out = append(out, "and goes on")
		}
		if r.Foreign() != nil {
			out = append(out, r.Foreign().Error())
		}
		if errors.Is(err, io.EOF) && r.Offset() != int64(len(b)) {
			out = append(out, fmt.Sprint("used ", r.Offset()))
		}
	}
	if !errors.Is(err, io.EOF) {
		out = append(out, err.Error())
	}
	return strings.Join(out, "; ")
}

// TestForeignCapturesAreReadStrictly has each field of each block in both byte orders, at its bounds and one beyond.
func TestForeignCapturesAreReadStrictly(t *testing.T) {
	t.Parallel()
	const p0, at = `0 unknown "frame" of 5 [] lost 0`, "at offset "
	for name, c := range map[string]struct {
		build func(f *foreign)
		want  string
	}{
		"nothing but a head": {func(f *foreign) { f.section() }, ""},
		"an ordinary one": {func(f *foreign) {
			f.section(f.option(optComment, "x")).iface(1, 0).packet(0, 7, 5, 9, "frame")
		}, `7000 unknown "frame" of 9 [] lost 0`},
		"options of a packet": {func(f *foreign) {
			f.section().iface(1, 0).packet(0, 0, 5, 5, "frame", f.option(optComment, "a"), f.option(optPacketFlags, string(f.u32(flagInbound))), f.option(optPacketDrops, string(f.o.AppendUint64(nil, 3))), f.option(77, "y"), f.option(optComment, "bcd"), f.option(optEnd, ""), f.option(optComment, "behind"))
		}, `0 to guest "frame" of 5 ["a" "bcd"] lost 3`},
		"outbound": {func(f *foreign) {
			f.section().iface(1, 0).packet(0, 0, 4, 4, "data", f.option(optPacketFlags, string(f.u32(flagOutbound|0x1f0))))
		}, `0 from guest "data" of 4 [] lost 0`},
		"flags of another length": {func(f *foreign) {
			f.section().iface(1, 0).packet(0, 0, 5, 5, "frame", f.option(optPacketFlags, "\x01\x01"), f.option(optPacketDrops, "\x01\x01\x01\x01"))
		}, p0},
		"seconds": {func(f *foreign) {
			f.section().iface(1, 0, f.option(optInterfaceResolution, "\x00")).packet(0, 7, 5, 5, "frame")
		}, `7000000000 unknown "frame" of 5 [] lost 0`},
		"nanoseconds, shifted": {func(f *foreign) {
			f.section().iface(1, 0, f.option(optInterfaceResolution, "\x09"), f.option(optInterfaceOffset, string(f.o.AppendUint64(nil, 2)))).packet(0, 7, 5, 5, "frame")
		}, `2000000007 unknown "frame" of 5 [] lost 0`},
		"halves of a second": {func(f *foreign) {
			f.section().iface(1, 0, f.option(optInterfaceResolution, "\x81")).packet(0, 3, 5, 5, "frame")
		}, `1500000000 unknown "frame" of 5 [] lost 0`},
		"a resolution of 2 bytes": {func(f *foreign) {
			f.section().iface(1, 0, f.option(optInterfaceResolution, "\x00\x00"), f.option(optInterfaceOffset, "\x00")).packet(0, 7, 5, 5, "frame")
		}, `7000 unknown "frame" of 5 [] lost 0`},
		"a resolution of 10^-200": {func(f *foreign) {
			f.section().iface(1, 0, f.option(optInterfaceResolution, "\x7f")).packet(0, 1<<31, 5, 5, "frame")
		}, p0},
		"two interfaces": {func(f *foreign) {
			f.section().iface(1, 0).iface(1, 0, f.option(optInterfaceResolution, "\x00")).packet(1, 1, 5, 5, "frame")
		}, `1000000000 unknown "frame" of 5 [] lost 0`},
		"an unknown interface": {func(f *foreign) { f.section().iface(1, 0).packet(1, 1, 5, 5, "frame") }, at + "48: not a capture: a packet of interface 1, of which nothing was said"},
		"another section":      {func(f *foreign) { f.section().iface(1, 0).section().packet(0, 1, 5, 5, "frame") }, at + "76: not a capture: a packet of interface 0, of which nothing was said"},
		"of another link": {func(f *foreign) {
			f.section().iface(113, 0).iface(1, 0).packet(0, 0, 5, 5, "other").packet(1, 0, 5, 5, "frame")
		}, p0 + "; at offset 68: the capture's link is not Ethernet: its type is 113; capture on the guest's interface (tcpdump -i eth0), not on \"any\""},
		"a frame beyond its block": {func(f *foreign) { f.section().iface(1, 0).packet(0, 0, 9, 9, "frame") }, at + "48: not a capture: a packet of 9 bytes in a block of 40"},
		"a frame to its end":       {func(f *foreign) { f.section().iface(1, 0).packet(0, 0, 8, 8, "8 bytes.") }, `0 unknown "8 bytes." of 8 [] lost 0`},
		"a length over 2^31":       {func(f *foreign) { f.section().iface(1, 0).packet(0, 0, 5, 1<<31, "frame") }, at + "48: not a capture: a packet of 5 bytes in a block of 40"},
		"a length below 2^31":      {func(f *foreign) { f.section().iface(1, 0).packet(0, 0, 5, 1<<31-1, "frame") }, `0 unknown "frame" of 2147483647 [] lost 0`},
		"a short packet block":     {func(f *foreign) { f.section().iface(1, 0).block(blockPacket, make([]byte, 16)) }, at + "48: not a capture: a packet block of 16 bytes"},
		"an empty packet":          {func(f *foreign) { f.section().iface(1, 0).packet(0, 0, 0, 0, "") }, `0 unknown "" of 0 [] lost 0`},
		"an option beyond": {func(f *foreign) {
			f.section().iface(1, 0).packet(0, 0, 5, 5, "frame", f.u16(optComment, 5), []byte("abcd"))
		}, at + "48: not a capture: an option of 5 bytes"},
		"an option to the end": {func(f *foreign) {
			f.section().iface(1, 0).packet(0, 0, 5, 5, "frame", f.u16(optComment, 4), []byte("abcd"))
		}, `0 unknown "frame" of 5 ["abcd"] lost 0`},
		"a simple packet":          {func(f *foreign) { f.section().iface(1, 0).block(blockSimple, f.u32(5), []byte("frame")) }, p0},
		"a simple packet, snapped": {func(f *foreign) { f.section().iface(1, 3).block(blockSimple, f.u32(5), []byte("fra")) }, `0 unknown "fra" of 5 [] lost 0`},
		"below its snap length":    {func(f *foreign) { f.section().iface(1, 9).block(blockSimple, f.u32(5), []byte("frame")) }, p0},
		"a simple one to the end":  {func(f *foreign) { f.section().iface(1, 0).block(blockSimple, f.u32(4), []byte("abcd")) }, `0 unknown "abcd" of 4 [] lost 0`},
		"a simple one beyond":      {func(f *foreign) { f.section().iface(1, 0).block(blockSimple, f.u32(9), []byte("frame")) }, at + "48: not a capture: a packet of 9 bytes in a block of 24"},
		"a simple one of no link":  {func(f *foreign) { f.section().block(blockSimple, f.u32(5), []byte("frame")) }, at + "28: not a capture: a packet without an interface"},
		"an empty simple one":      {func(f *foreign) { f.section().iface(1, 0).block(blockSimple) }, at + "48: not a capture: a packet without an interface"},
		"a foreign simple one":     {func(f *foreign) { f.section().iface(113, 0).block(blockSimple, f.u32(5), []byte("frame")) }, at + "48: the capture's link is not Ethernet: its type is 113; capture on the guest's interface (tcpdump -i eth0), not on \"any\""},
		"names": {func(f *foreign) {
			f.section().block(blockNames, f.u16(nameRecordIPv4, 12), []byte("\x01\x02\x03\x04ab\x00\x00c\x00de"), f.u16(9, 3), []byte("xyz\x00"), f.u16(nameRecordIPv6, 17), []byte("\x20\x01"+strings.Repeat("\x00", 13)+"\x05f\x00\x00\x00"), f.u16(nameRecordIPv4, 4), []byte("\x05\x06\x07\x08"), f.u16(nameRecordIPv4, 3), []byte("\x05\x06\x07\x00"), f.u16(0, 0), f.u16(nameRecordIPv4, 4), []byte("\x09\x06\x07\x08"))
		}, "1.2.3.4 [ab c de]; 2001::5 [f]; 5.6.7.8 []"},
		"a name to the end": {func(f *foreign) {
			f.section().block(blockNames, f.u16(nameRecordIPv4, 8), []byte("\x01\x02\x03\x04abc\x00"))
		}, "1.2.3.4 [abc]"},
		"a name beyond": {func(f *foreign) {
			f.section().block(blockNames, f.u16(nameRecordIPv4, 9), []byte("\x01\x02\x03\x04abcd"))
		}, at + "28: not a capture: a name record of 9 bytes"},
		"keys":                    {func(f *foreign) { f.section().block(blockSecrets, f.u32(secretsTLSKeyLog, 4), []byte("abcd")) }, `keys "abcd"`},
		"keys, padded":            {func(f *foreign) { f.section().block(blockSecrets, f.u32(secretsTLSKeyLog, 2), []byte("ab")) }, `keys "ab"`},
		"keys of another kind":    {func(f *foreign) { f.section().block(blockSecrets, f.u32(secretsTLSKeyLog+1, 4), []byte("abcd")) }, ""},
		"keys beyond":             {func(f *foreign) { f.section().block(blockSecrets, f.u32(secretsTLSKeyLog, 5), []byte("abcd")) }, at + "28: not a capture: secrets of 5 bytes in a block of 24"},
		"secrets of 4 bytes":      {func(f *foreign) { f.section().block(blockSecrets, f.u32(secretsTLSKeyLog)) }, at + "28: not a capture: secrets of 4 bytes"},
		"statistics":              {func(f *foreign) { f.section().block(blockStatistics, make([]byte, 12)) }, ""},
		"statistics of 8 bytes":   {func(f *foreign) { f.section().block(blockStatistics, make([]byte, 8)) }, at + "28: not a capture: statistics of 8 bytes"},
		"an unknown block":        {func(f *foreign) { f.section().block(0xbad, []byte("abcd")).block(0xbad) }, ""},
		"an interface of 4 bytes": {func(f *foreign) { f.section().block(blockInterface, make([]byte, 4)) }, at + "28: not a capture: an interface of 4 bytes"},
		"an interface's options": {func(f *foreign) {
			f.section().block(blockInterface, f.u16(1, 0), f.u32(0), f.u16(3, 9), []byte("abcd"))
		}, at + "28: not a capture: an option of 9 bytes"},
		"another version":        {func(f *foreign) { f.block(blockSection, f.u32(byteOrderMagic), f.u16(2, 0), make([]byte, 8)) }, at + "0: not a capture: a section of another version of pcapng"},
		"a section without end":  {func(f *foreign) { f.block(blockSection, f.u32(byteOrderMagic), f.u16(1, 0), make([]byte, 4)) }, at + "0: not a capture: a section of another version of pcapng"},
		"another byte order":     {func(f *foreign) { f.block(blockSection, f.u32(byteOrderMagic+1), f.u16(1, 0), make([]byte, 8)) }, at + "0: not a capture: a section of unknown byte order"},
		"a block of 8 bytes":     {func(f *foreign) { f.section(); f.b = append(f.b, f.u32(0xbad, 8, 8)...) }, at + "28: not a capture: a block of 8 bytes"},
		"a block of 13 bytes":    {func(f *foreign) { f.section(); f.b = append(f.b, f.u32(0xbad, 13, 13, 0)...) }, at + "28: not a capture: a block of 13 bytes"},
		"a block over the bound": {func(f *foreign) { f.section(); f.b = append(f.b, f.u32(0xbad, maxBlock+4, 13, 0)...) }, fmt.Sprintf("at offset 28: not a capture: a block of %d bytes", maxBlock+4)},
		"two lengths":            {func(f *foreign) { f.section(); f.b = append(f.b, f.u32(0xbad, 12, 16)...) }, at + "28: not a capture: a block's length is 12 at its start and 16 at its end"},
		"a head that is cut":     {func(f *foreign) { f.section(); f.b = append(f.b, f.u32(0xbad)...) }, at + "28: the capture is cut off: 4 bytes are left of 12"},
		"a block that is cut":    {func(f *foreign) { f.section(); f.b = append(f.b, f.u32(0xbad, 16, 0)...) }, at + "28: the capture is cut off: 12 bytes are left of 16"},
	} {
		for _, o := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			f := &foreign{o: o}
			c.build(f)
			if got := records(f.b); got != c.want {
				t.Errorf("%s, %v:\ngot  %s\nwant %s", name, o, got, c.want)
			}
		}
	}
	for name, c := range map[string]struct {
		b    string
		want string
	}{
		"nothing":        {"", "EOF"},
		"three bytes":    {"\x0a\x0d\x0d", "not a capture: it has 3 bytes"},
		"text":           {"hello", "not a capture: it begins with"},
		"pcap's head":    {"\xd4\xc3\xb2\xa1\x02\x00\x04\x00", "the capture is cut off"},
		"pcap's packet":  {"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + strings.Repeat("\x00", 12) + "\x01\x00\x00\x00" + strings.Repeat("\x00", 8) + "\x01\x00\x00\x01\x00\x00\x00\x00", "at offset 24: not a capture: a packet of 16777217 bytes"},
		"and its length": {"\xd4\xc3\xb2\xa1\x02\x00\x04\x00" + strings.Repeat("\x00", 12) + "\x01\x00\x00\x00" + strings.Repeat("\x00", 12) + "\x01\x00\x00\x01", "at offset 24: not a capture: a packet of 16777217 bytes"},
	} {
		if got := records([]byte(c.b)); !strings.Contains(got, c.want) && name != "nothing" {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestVerdictsRoundTrip has every field, values that need quotes, and comments that are none.
func TestVerdictsRoundTrip(t *testing.T) {
	t.Parallel()
	full := Verdict{
		Kind: KindRequest, Flow: 7, Action: "deny", WouldDeny: true, Rule: "a rule", Reason: "no_rule", Name: "a.example", To: "192.0.2.1:443",
		Scheme: "https", Method: "GET", Path: "/a:b\\c\"d~é\x00", Overrides: "PUT,DELETE", Message: "it: is = \"so\"",
	}
	for _, v := range []Verdict{full, {Kind: KindFlow}, {Kind: KindName, Flow: 1<<64 - 1, Name: "!"}, {Kind: KindFlow, Message: "only this"}, {Kind: KindFlow, Rule: "~", Reason: "}"}} {
		if got, ok := ParseVerdict(v.String()); !ok || got != v {
			t.Errorf("%s: %+v, %v", v, got, ok)
		}
	}
	for comment, want := range map[string]bool{
		"msb flow=7": true, "msb flow=7: x": true, "msb flow=7 new=x": true, "msb flow=7 would_deny=no": true, "msb flow=7 rule=\"a\" name=b": true,
		"": false, "flow=7": false, "msb ": false, "msb flow=": false, "msb flow=x": false, "msb flow=-1": false, "msb other=7": false, "msb flow=7 ": false,
		"msb flow=7 x": false, "msb flow=7 =x": false, "msb flow=7 rule=\"a": false, "msb": false,
	} {
		if v, ok := ParseVerdict(comment); ok != want || v.WouldDeny {
			t.Errorf("%q: %+v, %v, want %v", comment, v, ok, want)
		}
	}
	plain := Verdict{Kind: KindFlow, Message: strings.Repeat("m", 2*maxComment)}
	room := maxComment - len(Verdict{Kind: KindFlow}.String()) - len(" rule=")
	for n, want := range map[int]bool{room: true, room + 1: false} {
		if plain.Rule = strings.Repeat("r", n); plain.Whole() != want {
			t.Errorf("a rule of %d characters: whole is %v", n, !want)
		}
	}
	for comment, want := range map[string]int{LostVerdicts(7): 7, LostVerdicts(0): 0, lostPrefix + "-1": 0, lostPrefix + "x": 0, lostPrefix: 0, "7": 0} {
		if got := ParseLostVerdicts(comment); got != want {
			t.Errorf("%q: %d, want %d", comment, got, want)
		}
	}
}
