package mask

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// TestI11_EncodingsOverEncodingsAreBounded: with each of them a small body can swell a thousandfold.
func TestI11_EncodingsOverEncodingsAreBounded(t *testing.T) {
	t.Parallel()
	text := []byte("in clear")
	packed := text
	for n := range 5 {
		r, err := Decode(bytes.NewReader(packed), strings.TrimSuffix(strings.Repeat("gzip, ", n), ", "))
		if n > 2 {
			if !errors.Is(err, errEncoding) {
				t.Errorf("%d encodings: %v", n, err)
			}
		} else if err != nil {
			t.Errorf("%d encodings: %v", n, err)
		} else if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%d encodings: %q, %v", n, got, err)
		}
		var next bytes.Buffer
		w := gzip.NewWriter(&next)
		if _, err := w.Write(packed); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		packed = next.Bytes()
	}
}
