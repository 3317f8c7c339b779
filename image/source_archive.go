package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// archiveSource is a file as "docker save" writes it, plain or compressed.
type archiveSource struct {
	path  string
	store *Store // beside which a compressed one is unpacked
}

var _ source = archiveSource{}

func (a archiveSource) canonical() string { return "" }

func (a archiveSource) resolve(ctx context.Context, want Platform, limits sizeLimits) (*resolved, error) {
	ar, err := a.open(ctx, limits)
	if err != nil {
		return nil, err
	}
	res, err := ar.resolve(want, limits)
	if err != nil {
		_ = ar.f.Close()
		return nil, fmt.Errorf("archive %s: %w", a.path, err)
	}
	res.close = func() { _ = ar.f.Close() }
	return res, nil
}

// open indexes the members. A compressed archive is unpacked into a nameless file on the way, since its members are not
// read in their order.
func (a archiveSource) open(ctx context.Context, limits sizeLimits) (*archive, error) {
	f, err := os.OpenFile(a.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, localError(a.path, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no file; write oci:DIR or dir:PATH for directories", ErrReference, a.path)
	}
	ar := &archive{f: f, members: make(map[string]member)}
	compressed := false
	if err == nil {
		compressed, err = isCompressed(f)
	}
	switch {
	case err != nil:
	case compressed:
		ar, err = a.store.spoolArchive(ctx, f)
		err = errors.Join(err, f.Close())
	default:
		// The tar reader does not read ahead, so that an entry's contents start where the file stands.
		err = ar.index(tar.NewReader(f), func() (int64, error) { return f.Seek(0, io.SeekCurrent) }, limits)
	}
	if err != nil {
		if ar != nil {
			_ = ar.f.Close()
		}
		return nil, fmt.Errorf("archive %s: %w", a.path, err)
	}
	return ar, nil
}
