package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// refNameAnnotation is how an image layout names a tag (OCI image specification, annotations).
const refNameAnnotation = "org.opencontainers.image.ref.name"

// ociSource is an OCI image layout in a directory.
type ociSource struct {
	dir, tag, digest string
}

var _ source = ociSource{}

func (o ociSource) canonical() string { return "" }

func (o ociSource) resolve(ctx context.Context, want Platform, limits sizeLimits) (*resolved, error) {
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return nil, localError(o.dir, err)
	}
	res, err := o.read(ctx, root, want, limits)
	if err != nil {
		_ = root.Close()
		return nil, err
	}
	res.close = func() { _ = root.Close() }
	return res, nil
}

func (o ociSource) read(ctx context.Context, root *os.Root, want Platform, limits sizeLimits) (*resolved, error) {
	from := &layoutBlobs{dir: o.dir, root: root}
	index, err := from.read("index.json", maxManifestBytes)
	if err != nil {
		return nil, fmt.Errorf("%s is no OCI image layout: %w", o.dir, err)
	}
	if err := checkJSON("index.json", index); err != nil {
		return nil, err
	}
	raw, err := o.choose(ctx, from, index, want)
	if err != nil {
		return nil, err
	}
	if raw, err = selectManifest(ctx, from, raw, want); err != nil {
		return nil, err
	}
	return resolveManifest(ctx, from, raw, want, limits)
}

// choose returns the manifest or index that the reference means.
func (o ociSource) choose(ctx context.Context, from blobs, raw []byte, want Platform) ([]byte, error) {
	if o.digest != "" {
		d, err := parseDigest(o.digest)
		if err != nil {
			return nil, err
		}
		return readManifest(ctx, from, d)
	}
	index, err := v1.ParseIndexManifest(strings.NewReader(string(raw)))
	if err != nil {
		return nil, fmt.Errorf("%w: index.json of %s is malformed: %w", ErrConfig, o.dir, err)
	}
	var tags []string
	var found []v1.Descriptor
	for _, m := range index.Manifests {
		tag := m.Annotations[refNameAnnotation]
		if tag != "" {
			tags = append(tags, tag)
		}
		if o.tag == "" || tag == o.tag || strings.HasSuffix(tag, ":"+o.tag) {
			found = append(found, m)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s has no tag %q; it has %.200q", ErrNotFound, o.dir, o.tag, tags)
	case len(found) > 1 && o.tag == "" && len(tags) > 1:
		return nil, fmt.Errorf("%w: %s has several images; name one of %.200q as %s%s:TAG", ErrReference, o.dir, tags, ociPrefix, o.dir)
	}
	desc, err := choosePlatform(&v1.IndexManifest{Manifests: found}, want)
	if err != nil {
		// An entry without a platform says what it is in its configuration.
		desc = found[0]
		if desc.Platform != nil {
			return nil, err
		}
	}
	d, err := parseDigest(desc.Digest.String())
	if err != nil {
		return nil, fmt.Errorf("%w: index.json of %s: %w", ErrConfig, o.dir, err)
	}
	return readManifest(ctx, from, d)
}

func readManifest(ctx context.Context, from blobs, d digest) ([]byte, error) {
	raw, err := from.manifest(ctx, d)
	if err != nil {
		return nil, err
	}
	return raw, d.verifyBytes("the manifest", raw)
}

// layoutBlobs reads a layout through os.Root: a link in the directory can't lead out.
type layoutBlobs struct {
	dir  string
	root *os.Root
}

var _ blobs = (*layoutBlobs)(nil)

func (l *layoutBlobs) manifest(_ context.Context, d digest) ([]byte, error) {
	return l.read(path.Join("blobs", d.algorithm, d.hex), maxManifestBytes)
}

func (l *layoutBlobs) blob(_ context.Context, d digest) (io.ReadCloser, error) {
	return l.open(path.Join("blobs", d.algorithm, d.hex))
}

// open takes regular files only, and does not wait for the writer of a FIFO.
func (l *layoutBlobs) open(name string) (*os.File, error) {
	f, err := l.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, localError(path.Join(l.dir, name), err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", ErrConfig, path.Join(l.dir, name))
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (l *layoutBlobs) read(name string, limit int64) ([]byte, error) {
	f, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", ErrLimit, path.Join(l.dir, name), limit)
	}
	return b, nil
}

// localError gives a missing file the sentinel of a missing image.
func localError(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no %s", ErrNotFound, path)
	}
	return err
}
