package image

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow bounds the memory of one zstd layer; 128 MiB is what the zstd tool
// accepts without being told (--long=27). Bytes.
const maxZstdWindow = 128 << 20

var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	// zstdSkippable starts the skippable frames (0x184D2A50 to 5F) that
	// zstd:chunked layers may begin with; the low nibble of the first byte varies.
	zstdSkippable = []byte{0x2a, 0x4d, 0x18}
)

// decompress goes by the first bytes, since media types lie. Anything that is
// neither gzip nor zstd is taken as a plain tar.
func decompress(r io.Reader) (io.ReadCloser, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	head, err := br.Peek(len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		zr, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("%w: broken gzip: %w", ErrHostile, err)
		}
		return zr, nil
	case bytes.Equal(head, zstdMagic),
		len(head) == 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:], zstdSkippable):
		zr, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: broken zstd: %w", ErrHostile, err)
		}
		return zr.IOReadCloser(), nil
	default:
		return io.NopCloser(br), nil
	}
}
