package image

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// dirSource is a host directory whose contents become the root. It is read as a tar
// stream that depends on the directory's names, metadata and contents alone: once for
// its digest, which keys the cache, and again when the cache has no such disk.
type dirSource struct{ path string }

var _ source = dirSource{}

// dirPath is the search path of a directory that says nothing about itself.
const dirPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (d dirSource) canonical() string { return "" }

func (d dirSource) resolve(ctx context.Context, want Platform, limits sizeLimits) (*resolved, error) {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return nil, localError(d.path, err)
	}
	sum := newHashReader(nil, digest{algorithm: "sha256"})
	size := &countingWriter{w: sum.h}
	if err := writeTree(ctx, root, size, limits); err != nil {
		_ = root.Close()
		return nil, fmt.Errorf("read the directory %s: %w", d.path, err)
	}
	id := digest{"sha256", hex.EncodeToString(sum.h.Sum(nil))}
	open := func(ctx context.Context) (io.ReadCloser, error) {
		pr, pw := io.Pipe()
		go func() { _ = pw.CloseWithError(writeTree(ctx, root, pw, limits)) }()
		return pr, nil
	}
	return &resolved{
		digest: id, config: Config{Env: []string{dirPath}, WorkingDir: "/"}, platform: want,
		// A directory that changes between the two readings fails this diffID.
		layers: []layerSource{{size: size.n, diffID: &id, open: open}},
		close:  func() { _ = root.Close() },
	}, nil
}

// countingWriter counts what passes.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
