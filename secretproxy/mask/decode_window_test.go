package mask

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestI11_WindowsOfAnswersAreBounded: what a decoder holds is the window that the server chose. RFC 8878 asks for 8 MiB.
func TestI11_WindowsOfAnswersAreBounded(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("0123456789abcdef", 1<<20)) // 16 MiB
	for window, decoded := range map[int]bool{8 << 20: true, 16 << 20: false, 512 << 20: false} {
		var b bytes.Buffer
		w, err := zstd.NewWriter(&b, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Decode(&b, "zstd")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, r)
		if (err == nil && n == int64(len(text))) != decoded {
			t.Errorf("a window of %d MiB: %d bytes, %v", window>>20, n, err)
		}
	}
}
