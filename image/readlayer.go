package image

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/msb-project/msb/image/rootfs"
)

// readLayer reads one layer to its end: bytes counted, digest of the compressed
// and of the decompressed stream checked.
func readLayer(ctx context.Context, src layerSource, spool *rootfs.Spool, budget *rootfs.Budget, rep *reporter) (*rootfs.Layer, error) {
	rc, err := src.open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rc.Close() }()
	counted := &countingReader{r: rc, limit: src.size, count: func(n int64) { rep.fetched(src.label(), n) }}
	compressed := newHashReader(counted, orSHA256(src.digest))
	l, err := readCompressed(ctx, compressed, src, spool, budget)
	if err != nil && !worthDigest(ctx, err) {
		return nil, err
	}
	// What follows the compressed stream belongs to the digest. After an error the
	// digest decides whose fault it is: the network's or the image's.
	if _, derr := io.Copy(io.Discard, compressed); derr != nil && err == nil {
		return nil, derr
	}
	if derr := compressed.check(src.digest, "the layer"); derr != nil {
		return nil, derr
	}
	return l, err
}

func readCompressed(ctx context.Context, compressed io.Reader, src layerSource, spool *rootfs.Spool, budget *rootfs.Budget) (*rootfs.Layer, error) {
	plain, err := decompress(compressed)
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }()
	hashed := newHashReader(&codecErrors{plain}, orSHA256(src.diffID))
	l, err := rootfs.ReadLayer(ctx, hashed, spool, budget)
	if err != nil {
		return nil, err
	}
	if err := hashed.check(src.diffID, "the decompressed layer"); err != nil {
		return nil, err
	}
	return l, nil
}

// worthDigest says whether the rest of a broken layer is read to check its digest: only if its
// bytes could not be decoded.
func worthDigest(ctx context.Context, err error) bool {
	return ctx.Err() == nil && errors.Is(err, ErrHostile) && !errors.Is(err, ErrLimit)
}

func orSHA256(d *digest) digest {
	if d == nil {
		return digest{algorithm: "sha256"}
	}
	return *d
}

// countingReader reports progress and ends a blob that is longer than its
// descriptor says, before it fills the disk.
type countingReader struct {
	r     io.Reader
	n     int64
	limit int64
	count func(int64)
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	r.n += int64(n)
	r.count(int64(n))
	if r.limit >= 0 && r.n > r.limit {
		err = fmt.Errorf("%w: the layer is longer than the %d bytes of its descriptor", ErrDigest, r.limit)
		return 0, &transferError{err}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = &transferError{err}
	}
	return n, err
}

// transferError marks errors of the source, as opposed to those of a codec.
type transferError struct{ err error }

func (e *transferError) Error() string { return e.err.Error() }
func (e *transferError) Unwrap() error { return e.err }

// codecErrors gives errors that the compression itself reports the sentinel of a
// broken layer.
type codecErrors struct{ r io.Reader }

func (c *codecErrors) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	var transfer *transferError
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &transfer) {
		err = fmt.Errorf("%w: its compression is broken: %w", ErrHostile, err)
	}
	return n, err
}
