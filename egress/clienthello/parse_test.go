package clienthello_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/msb-project/msb/egress/clienthello"
	"github.com/msb-project/msb/hostname"
)

// realHello returns the first flight of Go's own TLS client.
func realHello(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan []byte, 1)
	go func() {
		buf := make([]byte, 32<<10)
		n, _ := server.Read(buf)
		_ = server.Close()
		done <- buf[:n]
	}()
	_ = tls.Client(client, cfg).HandshakeContext(context.Background())
	_ = client.Close()
	return <-done
}

// split writes the handshake message of one record over records of n bytes.
func split(record []byte, n int) []byte {
	var out []byte
	for part := range slices.Chunk(record[5:], n) {
		out = append(out, record[0], record[1], record[2], 0, 0)
		binary.BigEndian.PutUint16(out[len(out)-2:], uint16(len(part)))
		out = append(out, part...)
	}
	return out
}

// extension appends a raw extension to a real hello and mends the three lengths.
func extension(record []byte, typ uint16, body []byte) []byte {
	b := slices.Clone(record)
	at := 5 + 4 + 2 + 32
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	b = binary.BigEndian.AppendUint16(b, typ)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, body...)
	add := 4 + len(body)
	binary.BigEndian.PutUint16(b[at:], binary.BigEndian.Uint16(b[at:])+uint16(add))
	binary.BigEndian.PutUint16(b[3:], binary.BigEndian.Uint16(b[3:])+uint16(add))
	n := int(b[6])<<16 | int(b[7])<<8 | int(b[8])
	n += add
	b[6], b[7], b[8] = byte(n>>16), byte(n>>8), byte(n)
	return b
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(list, 0)
		list = binary.BigEndian.AppendUint16(list, uint16(len(n)))
		list = append(list, n...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
}

func TestParseReadsARealHello(t *testing.T) {
	t.Parallel()
	record := realHello(t, &tls.Config{ServerName: "Api.GitHub.com", NextProtos: []string{"h2", "http/1.1"}})
	for _, size := range []int{1 << 14, 600, 100, 31} {
		got, err := clienthello.Parse(split(record, size))
		if err != nil {
			t.Fatalf("records of %d bytes: %v", size, err)
		}
		if want := hostname.MustParse("api.github.com"); got.ServerName != want {
			t.Errorf("records of %d bytes: server name %q, want %q", size, got.ServerName, want)
		}
		if !slices.Equal(got.ALPN, []string{"h2", "http/1.1"}) || got.ECH {
			t.Errorf("records of %d bytes: got %+v", size, got)
		}
	}
}

func TestCutHellosNeedMoreBytes(t *testing.T) {
	t.Parallel()
	record := split(realHello(t, &tls.Config{ServerName: "a.example"}), 100)
	for n := range record {
		if _, err := clienthello.Parse(record[:n]); !errors.Is(err, clienthello.ErrIncomplete) {
			t.Fatalf("first %d of %d bytes: got %v, want ErrIncomplete", n, len(record), err)
		}
	}
}

func TestParseRefusesAmbiguousHellos(t *testing.T) {
	t.Parallel()
	noSNI := realHello(t, &tls.Config{InsecureSkipVerify: true})
	named := realHello(t, &tls.Config{ServerName: "a.example"})
	trailing := append(slices.Clone(named), 0)
	binary.BigEndian.PutUint16(trailing[3:], binary.BigEndian.Uint16(trailing[3:])+1)
	// The hello says that it ends before its extensions, which are bytes behind it.
	at := 5 + 4 + 2 + 32
	at += 1 + int(named[at])
	at += 2 + int(binary.BigEndian.Uint16(named[at:]))
	at += 1 + int(named[at])
	behind := slices.Clone(named)
	behind[6], behind[7], behind[8] = 0, byte((at-9)>>8), byte(at-9)
	alertInside := append(split(named, 40)[:45], 21, 3, 3, 0, 2, 1, 0)
	tests := map[string]struct {
		in   []byte
		want error
	}{
		"two server_name extensions": {extension(named, 0, sni("b.example")), clienthello.ErrMalformed},
		"two names in one extension": {extension(noSNI, 0, sni("a.example", "b.example")), clienthello.ErrMalformed},
		"an address as server name":  {extension(noSNI, 0, sni("127.0.0.1")), clienthello.ErrMalformed},
		"an empty server name":       {extension(noSNI, 0, sni("")), clienthello.ErrMalformed},
		"NUL in the server name":     {extension(noSNI, 0, sni("a.example\x00.evil.example")), clienthello.ErrMalformed},
		"full-width server name":     {extension(noSNI, 0, sni("ｇｏｏｄ.example")), clienthello.ErrMalformed},
		"bytes behind the hello":     {trailing, clienthello.ErrMalformed},
		"bytes behind it to come":    {trailing[:len(trailing)-1], clienthello.ErrMalformed},
		"extensions behind it":       {behind, clienthello.ErrMalformed},
		"an alert inside the hello":  {alertInside, clienthello.ErrMalformed},
		"an empty record":            {[]byte{22, 3, 1, 0, 0}, clienthello.ErrMalformed},
		"SSLv2 hello":                {[]byte{0x80, 0x2e, 1, 3, 1}, clienthello.ErrNotTLS},
		"HTTP":                       {[]byte("GET / HTTP/1.1\r\n"), clienthello.ErrNotTLS},
		"a server hello":             {[]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, clienthello.ErrNotTLS},
		"a hello of 4 MiB":           {[]byte{22, 3, 1, 0, 4, 1, 0x40, 0, 0}, clienthello.ErrTooLong},
		"a record for each byte":     {split(named, 1), clienthello.ErrTooLong},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := clienthello.Parse(tt.in); !errors.Is(err, tt.want) {
				t.Errorf("got %+v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestParseSeesEncryptedHello(t *testing.T) {
	t.Parallel()
	b := extension(realHello(t, &tls.Config{ServerName: "public.example"}), 0xfe0d, []byte{0, 0, 1, 0, 1, 7})
	if got, err := clienthello.Parse(b); err != nil || !got.ECH {
		t.Errorf("got %+v, %v; want ECH", got, err)
	}
}

func TestParseAllowsNoServerName(t *testing.T) {
	t.Parallel()
	got, err := clienthello.Parse(realHello(t, &tls.Config{InsecureSkipVerify: true}))
	if err != nil || !got.ServerName.IsZero() {
		t.Errorf("got %+v, %v; want a hello without a name", got, err)
	}
}

func FuzzClientHello(f *testing.F) {
	record := realHello(f, &tls.Config{ServerName: "a.example", NextProtos: []string{"h2"}})
	f.Add(record)
	f.Add(split(record, 30))
	f.Add(extension(record, 0, sni("b.example")))
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := clienthello.Parse(b)
		if err != nil {
			return
		}
		// Whatever was read from a whole hello must not change when more bytes of the stream follow.
		if again, err := clienthello.Parse(append(slices.Clone(b), 22, 3, 3, 0, 1)); err == nil && again.ServerName != h.ServerName {
			t.Errorf("name %q became %q", h.ServerName, again.ServerName)
		}
	})
}
