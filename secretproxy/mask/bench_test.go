package mask

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// BenchmarkReader streams a body past the masker of one secret that isn't in
// it: what every download from a host with a secret pays.
func BenchmarkReader(b *testing.B) {
	lines := bytes.Repeat([]byte("0123456789abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ.\n"), 16<<10)
	binary := make([]byte, len(lines))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range binary {
		binary[i] = byte(random.Uint32())
	}
	json := []byte(strings.Repeat(`{"id":12345,"name":"an item","path":"\/a\/b","ok":true},`, len(lines)/56))
	set, replace := compile()
	for name, data := range map[string][]byte{"lines": lines, "binary": binary, "json": json, "solid": bytes.ReplaceAll(lines, []byte("\n"), nil)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			buf := make([]byte, 64<<10)
			for b.Loop() {
				r := NewReader(struct{ io.Reader }{bytes.NewReader(data)}, NewStream(set, replace, false))
				if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
