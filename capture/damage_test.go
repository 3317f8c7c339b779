package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"testing"
)

// sample is a capture of three packets with everything in it.
func sample(t testing.TB) []byte {
	t.Helper()
	var out buffer
	w := NewWriter(&out, Options{})
	w.Names("n.example", []netip.Addr{netip.MustParseAddr("192.0.2.1")})
	w.TLSKeys([]byte("CLIENT_RANDOM 00 11\n"))
	for i := range 3 {
		w.Packet(Direction(i%2), frame(i, 60+i), "comment")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// blocks gives the offset of each block of a kind.
func blocks(b []byte, kind uint32) []int {
	var at []int
	for i := 0; i < len(b); i += int(order.Uint32(b[i+4:])) {
		if order.Uint32(b[i:]) == kind {
			at = append(at, i)
		}
	}
	return at
}

func TestDamageIsReportedWithItsOffset(t *testing.T) {
	t.Parallel()
	whole := sample(t)
	packets := blocks(whole, blockPacket)
	tests := map[string]struct {
		damage  func(b []byte) []byte
		packets int
		offset  int
		is      error
	}{
		"cut in the second packet":          {func(b []byte) []byte { return b[:packets[1]+30] }, 1, packets[1], ErrTruncated},
		"cut in a block's head":             {func(b []byte) []byte { return b[:packets[2]+5] }, 2, packets[2], ErrTruncated},
		"a block of 4 GiB":                  {put32(packets[1]+4, 0xfffffffc), 1, packets[1], ErrFormat},
		"a block of 16 MiB in a small file": {put32(packets[1]+4, maxBlock), 1, packets[1], ErrTruncated},
		"a block of over 16 MiB":            {put32(packets[1]+4, maxBlock+4), 1, packets[1], ErrFormat},
		"a block that is odd at both ends": {func(b []byte) []byte {
			return append(b, 0x77, 0, 0, 0, 13, 0, 0, 0, 'x', 13, 0, 0, 0)
		}, len(packets), len(whole), ErrFormat},
		"a block of length 0, for ever":    {put32(packets[1]+4, 0), 1, packets[1], ErrFormat},
		"a block that leads into itself":   {put32(packets[1]+4, 8), 1, packets[1], ErrFormat},
		"an odd length":                    {put32(packets[1]+4, 99), 1, packets[1], ErrFormat},
		"lengths that differ":              {put32(packets[2]-4, 44), 0, packets[1] - 0, ErrFormat},
		"a packet longer than its block":   {put32(packets[1]+20, 5000), 1, packets[1], ErrFormat},
		"an interface that does not exist": {put32(packets[1]+8, 9), 1, packets[1], ErrFormat},
		"an option longer than its block":  {put32(packets[1]+28+64, 0xffff0001), 1, packets[1], ErrFormat},
		"no interface at all":              {put32(blocks(whole, blockInterface)[0], 99), 0, packets[0], ErrFormat},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := readAll(t, tt.damage(bytes.Clone(whole)))
			var e *Error
			if !errors.As(err, &e) || !errors.Is(err, tt.is) {
				t.Fatalf("got error %v, want %v with an offset", err, tt.is)
			}
			if name == "lengths that differ" { // the end of the second packet's block
				tt.packets, tt.offset = 1, packets[1]
			}
			if got := len(ofKind(all, PacketRecord)); got != tt.packets || e.Offset != int64(tt.offset) {
				t.Errorf("%d packets, then an error at %d (%v); want %d and %d", got, e.Offset, err, tt.packets, tt.offset)
			}
		})
	}
}

func put32(at int, v uint32) func([]byte) []byte {
	return func(b []byte) []byte { order.PutUint32(b[at:], v); return b }
}

func TestForeignFilesAreRefused(t *testing.T) {
	t.Parallel()
	sll := classic(binary.LittleEndian, magicMicro, 113, frame(1, 60))
	for name, tt := range map[string]struct {
		file []byte
		is   error
	}{
		"empty":            {nil, io.EOF},
		"three bytes":      {[]byte{10, 13, 13}, ErrFormat},
		"a picture":        {[]byte("\x89PNG\r\n\x1a\n and so on and on"), ErrFormat},
		"cut head of pcap": {sll[:20], ErrTruncated},
		"linux cooked":     {sll, ErrLink},
		"a section only":   {sample(t)[:8], ErrTruncated},
		"unknown order":    {append([]byte{10, 13, 13, 10, 28, 0, 0, 0, 1, 2, 3, 4}, make([]byte, 16)...), ErrFormat},
	} {
		all, err := readAll(t, tt.file)
		var e *Error
		if !errors.Is(err, tt.is) || !errors.As(err, &e) || len(all) != 0 {
			t.Errorf("%s: %d records, error %v; want %v with an offset", name, len(all), err, tt.is)
		}
	}
}

func TestForeignLinksPacketsAreLeftOut(t *testing.T) {
	t.Parallel()
	o := Options{}.withDefaults()
	b := preamble(&o)
	at := len(b)
	b = begin(b, blockInterface)
	b = append(b, 113, 0, 0, 0, 0, 0, 0, 0)
	b = end(endOptions(b), at)
	for i := range 4 {
		at = len(b)
		b = packetBlock(b, 1, FromGuest, [][]byte{frame(i, 60)}, 60, "", 0)
		order.PutUint32(b[at+8:], uint32(i%2))
	}
	all, err := readAll(t, b)
	if !errors.Is(err, ErrLink) || len(all) != 2 {
		t.Errorf("%d records, %v; want the two Ethernet packets and %v", len(all), err, ErrLink)
	}
}

// classic is a pcap file.
func classic(o binary.AppendByteOrder, magic, link uint32, frames ...[]byte) []byte {
	b := o.AppendUint32(nil, magic)
	b = o.AppendUint32(b, 0x00040002)
	b = append(b, make([]byte, 8)...)
	b = o.AppendUint32(b, 65535)
	b = o.AppendUint32(b, link)
	for i, f := range frames {
		b = o.AppendUint32(b, uint32(i))
		b = o.AppendUint32(b, 7)
		b = o.AppendUint32(b, uint32(len(f)))
		b = o.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

func TestAllKindsOfPcapAreRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		order binary.AppendByteOrder
		magic uint32
		time  int64
	}{
		"little endian, microseconds": {binary.LittleEndian, magicMicro, 1_000_007_000},
		"big endian, microseconds":    {binary.BigEndian, magicMicro, 1_000_007_000},
		"little endian, nanoseconds":  {binary.LittleEndian, magicNano, 1_000_000_007},
		"big endian, nanoseconds":     {binary.BigEndian, magicNano, 1_000_000_007},
	} {
		b := classic(tt.order, tt.magic, LinkEthernet, frame(0, 60), frame(1, 99))
		all, err := readAll(t, b)
		if err != nil || len(all) != 2 {
			t.Fatalf("%s: %d records, %v", name, len(all), err)
		}
		if r := all[1]; r.Time != tt.time || !bytes.Equal(r.Frame, frame(1, 99)) || r.Direction != UnknownDirection {
			t.Errorf("%s: got %+v", name, r)
		}
		all, err = readAll(t, b[:len(b)-1])
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, ErrTruncated) || len(all) != 1 || e.Offset != classicFileHead+classicPacketHead+60 {
			t.Errorf("%s, cut: %d records, %v", name, len(all), err)
		}
	}
}

func TestTimesOfEveryResolution(t *testing.T) {
	t.Parallel()
	for v, want := range map[byte]int64{
		0: 1_700_000_000e9, 3: 1_700_000_000_500e6, 6: 1_700_000_000_500e6, 9: 1_700_000_000_500e6,
		12: 1_700_000_000_500e6, 0x80: 1_700_000_000e9, 0x8a: 1_700_000_000_500e6, 0xa0: 1_700_000_000_500e6,
	} {
		var i iface
		i.setResolution(v)
		ts := uint64(1_700_000_000)
		switch {
		case v&0x80 != 0 && v != 0x80:
			ts = ts<<(v&0x7f) + 1<<(v&0x7f-1)
		case i.units > 1:
			ts = ts*i.units + i.units/2
		}
		if v == 12 { // beyond 64 bits in 1e-12 s: the largest that fits
			ts, want = 1_000_000*1_000_000_000_000+500_000_000_000, 1_000_000_500e6
		}
		if got := i.nanoseconds(ts); got != want {
			t.Errorf("resolution %#x: %d, want %d", v, got, want)
		}
	}
	for _, i := range []iface{{units: 1}, {shift: 127}, {units: 1e6, offset: -1 << 63}} {
		if got := i.nanoseconds(1<<64 - 1); got != 0 {
			t.Errorf("%+v: a time of no use became %d", i, got)
		}
	}
	for _, offset := range []int64{1 << 62, -1 << 62, maxSeconds + 1, -maxSeconds - 1} {
		if got := (&iface{units: 1, offset: offset}).nanoseconds(5); got != 0 {
			t.Errorf("offset %d: a time of no use became %d", offset, got)
		}
	}
}

func FuzzCapture(f *testing.F) {
	f.Add(sample(f))
	f.Add(classic(binary.BigEndian, magicNano, LinkEthernet, frame(0, 60)))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			return
		}
		var last int64 = -1
		for {
			rec, err := r.Next()
			if err != nil {
				return
			}
			if rec.Kind != NameRecord && rec.Offset <= last {
				t.Fatalf("a record at %d after one at %d", rec.Offset, last)
			}
			last = rec.Offset
			if rec.Kind == PacketRecord {
				_, _ = Decode(rec.Frame)
			}
			for _, c := range rec.Comments {
				if v, ok := ParseVerdict(c); ok {
					if again, ok := ParseVerdict(v.String()); !ok || again != v {
						t.Fatalf("%q: %+v became %+v", c, v, again)
					}
				}
			}
		}
	})
}

// TestI11_InterfacesOfACaptureAreBounded: each takes memory for as long as its section lasts.
func TestI11_InterfacesOfACaptureAreBounded(t *testing.T) {
	t.Parallel()
	for _, more := range []bool{false, true} {
		o := Options{}.withDefaults()
		b := preamble(&o) // with one interface
		packet := packetBlock(nil, 1, FromGuest, [][]byte{frame(1, 60)}, 60, "", 0)
		add := maxInterfaces - 1
		if more {
			add++
		}
		for range add {
			at := len(b)
			b = end(endOptions(append(begin(b, blockInterface), 1, 0, 0, 0, 0, 0, 0, 0)), at)
		}
		all, err := readAll(t, append(b, packet...))
		if more != errors.Is(err, ErrFormat) || !more && (err != nil || len(all) != 1) {
			t.Errorf("more than the bound: %v: %d packets, %v", more, len(all), err)
		}
	}
}
