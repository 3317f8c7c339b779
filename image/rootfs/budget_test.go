package rootfs

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

// TestI11_StreamsAreReadInBounds reads as much as the content may be with its headers, and a byte more, in several readers
// of one budget.
func TestI11_StreamsAreReadInBounds(t *testing.T) {
	t.Parallel()
	const content, entries = 1000, 3
	most := content + entries*perEntryStreamBytes
	for extra, want := range map[int]error{0: nil, 1: ErrLimit} {
		b := &Budget{TotalBytes: content, Entries: entries}
		var err error
		for _, size := range []int{most / 2, most - most/2 + extra} {
			_, readErr := io.Copy(io.Discard, b.reader(bytes.NewReader(make([]byte, size))))
			err = errors.Join(err, readErr)
		}
		if !errors.Is(err, want) {
			t.Errorf("%d bytes more than may be: %v, want %v", extra, err, want)
		}
	}
}
