package mask

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	// maxWindow is what a zstd decoder must take and need not exceed (RFC 8878,
	// section 3.1.1.1.2).
	maxWindow = 8 << 20
	// maxEncodings applied one over another: no server has a use for three,
	// and each multiplies what a small body can swell to.
	maxEncodings = 2
)

// errEncoding says that a content encoding can't be undone.
var errEncoding = errors.New("unknown content encoding")

// CanDecode reports whether Decode undoes that content encoding (lower case).
func CanDecode(name string) bool {
	switch name {
	case "identity", "gzip", "x-gzip", "br", "zstd", "deflate":
		return true
	}
	return false
}

// Decode returns body with its content encodings undone; encodings is the value
// of Content-Encoding, in the order they were applied (RFC 9110, section 8.4).
// Decoders start at the first Read, hold bounded memory, and never hold back
// what the encoder flushed.
func Decode(body io.Reader, encodings string) (io.Reader, error) {
	names := strings.FieldsFunc(strings.ToLower(encodings), func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	if len(names) > maxEncodings {
		return nil, fmt.Errorf("%w: %d of them", errEncoding, len(names))
	}
	for i := len(names) - 1; i >= 0; i-- {
		if !CanDecode(names[i]) {
			return nil, fmt.Errorf("%w %q", errEncoding, names[i])
		}
		if names[i] != "identity" {
			body = &lazyDecoder{name: names[i], source: body}
		}
	}
	return body, nil
}

// lazyDecoder makes its decoder when it's read: making one reads a header, for
// which a server may keep us waiting.
type lazyDecoder struct {
	name    string
	source  io.Reader
	decoder io.Reader
	err     error
}

// Read implements io.Reader.
func (d *lazyDecoder) Read(p []byte) (int, error) {
	if d.decoder == nil && d.err == nil {
		d.err = d.start()
	}
	if d.err != nil {
		return 0, d.err
	}
	n, err := d.decoder.Read(p)
	if err != nil {
		d.err = err
	}
	return n, err
}

func (d *lazyDecoder) start() error {
	switch d.name {
	case "gzip", "x-gzip":
		r, err := gzip.NewReader(d.source)
		if err != nil {
			return err
		}
		d.decoder = r
	case "br":
		source := bufio.NewReader(d.source)
		if _, err := source.Peek(1); err != nil {
			return err // an empty body, which brotli's own reader takes for one that broke off
		}
		d.decoder = brotli.NewReader(source)
	case "zstd":
		r, err := zstd.NewReader(d.source, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return err
		}
		d.decoder = r // one without goroutines: there is nothing to close
	case "deflate":
		return d.startDeflate()
	}
	return nil
}

// startDeflate takes zlib's format, as RFC 9110 says, and the bare one that
// some servers send.
func (d *lazyDecoder) startDeflate() error {
	source := bufio.NewReader(d.source)
	head, err := source.Peek(2)
	if err != nil {
		return err
	}
	if head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
		r, err := zlib.NewReader(source)
		if err != nil {
			return err
		}
		d.decoder = r
		return nil
	}
	d.decoder = flate.NewReader(source)
	return nil
}
