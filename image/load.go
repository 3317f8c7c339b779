package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxLoad bounds the images of one archive, and the names of each: docker save takes what a command line names.
const maxLoad = 32

// LoadOptions are the choices of one Load.
type LoadOptions struct {
	// Platform is as in Options.
	Platform Platform
	// Progress is told what happens; nil for silence.
	Progress Progress
}

// Load brings the images of an archive into the cache, under the names that it has for them: one that docker save writes
// (manifest.json), or a tar of an OCI image layout, plain or compressed. Until a registry is asked (PullAlways), a name
// means what was loaded last. Everything is checked as for docker-archive:; errors in the archive's lists are reported
// before any disk is made. The result has an Image for each name.
func (s *Store) Load(ctx context.Context, r io.Reader, o LoadOptions) ([]Image, error) {
	rep := newReporter("the archive", o.Progress, s.now)
	rep.phase(PhaseResolving)
	all, err := s.load(ctx, r, o, rep)
	if err != nil {
		rep.phase(PhaseFailed)
		return all, fmt.Errorf("load images: %w", spaceError(s.dir, err))
	}
	rep.done(false)
	return all, nil
}

func (s *Store) load(ctx context.Context, r io.Reader, o LoadOptions, rep *reporter) ([]Image, error) {
	ar, err := s.spoolArchive(ctx, r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ar.f.Close() }()
	want := o.Platform
	if want == (Platform{}) {
		want = DefaultPlatform()
	}
	found, err := ar.images(ctx, want, s.opts.limits)
	if err != nil {
		return nil, err
	}
	var all []Image
	for _, l := range found {
		img, err := s.ensureDisk(ctx, l.resolved, false, rep)
		if err != nil {
			return all, err
		}
		for _, key := range l.names {
			if err := s.saveRef(key, want, l.resolved); err != nil {
				return all, err
			}
			img.Ref = key
			all = append(all, *img)
		}
	}
	return all, nil
}

// spoolArchive writes r, decompressed, into a nameless file beside the cache, and indexes it as it comes.
func (s *Store) spoolArchive(ctx context.Context, r io.Reader) (*archive, error) {
	plain, err := decompress(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = plain.Close() }()
	st, err := s.newStaging()
	if err != nil {
		return nil, err
	}
	defer st.discard()
	f, err := st.spool()
	if err != nil {
		return nil, err
	}
	ar := &archive{f: f, members: make(map[string]member)}
	w := &spaceWriter{ctx: ctx, f: f, dir: s.dir, limit: s.opts.limits.totalBytes}
	err = ar.index(tar.NewReader(io.TeeReader(plain, w)), func() (int64, error) { return w.n, nil }, s.opts.limits)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return ar, nil
}

// loaded is an image of an archive and its names, as the cache remembers them.
type loaded struct {
	*resolved
	names []string
}

// images are those of the archive, by whichever list it has; docker's archives have both.
func (a *archive) images(ctx context.Context, want Platform, limits sizeLimits) ([]loaded, error) {
	var all []loaded
	var err error
	if _, docker := a.members["manifest.json"]; docker {
		all, err = a.dockerImages(want, limits)
	} else if _, oci := a.members["index.json"]; oci {
		all, err = a.layoutImages(ctx, want, limits)
	} else {
		return nil, fmt.Errorf("%w: it has neither manifest.json nor index.json; docker save and tar of an OCI layout write one", errArchive)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: it lists no image", errArchive)
	}
	return all, err
}

func (a *archive) dockerImages(want Platform, limits sizeLimits) ([]loaded, error) {
	entries, err := a.manifest()
	if err != nil {
		return nil, err
	}
	all := make([]loaded, 0, min(len(entries), maxLoad))
	for i, m := range entries {
		names, err := loadNames(i, len(entries), m.RepoTags)
		if err != nil {
			return nil, err
		}
		r, err := a.resolveEntry(&entries[i], want, limits)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names[0], err)
		}
		all = append(all, loaded{r, names})
	}
	return all, nil
}

// The annotations in which tools write an image's whole name; refNameAnnotation may be a tag alone.
const containerdNameAnnotation = "io.containerd.image.name"

func (a *archive) layoutImages(ctx context.Context, want Platform, limits sizeLimits) ([]loaded, error) {
	raw, err := a.read("index.json")
	if err != nil {
		return nil, err
	}
	if err := checkJSON("index.json", raw); err != nil {
		return nil, err
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("%w: index.json is malformed: %w", errArchive, err)
	}
	from := &archiveBlobs{a}
	var all []loaded
	for i := range index.Manifests {
		desc := &index.Manifests[i]
		if p := desc.Platform; p != nil && !want.runs(Platform{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}) && len(index.Manifests) > 1 {
			continue // another platform's, or an attestation
		}
		called := desc.Annotations[containerdNameAnnotation]
		if called == "" {
			called = desc.Annotations[refNameAnnotation]
		}
		names, err := loadNames(len(all), len(index.Manifests), []string{called})
		if err != nil {
			return nil, err
		}
		d, err := parseDigest(desc.Digest.String())
		if err != nil {
			return nil, fmt.Errorf("%w: index.json: %w", errArchive, err)
		}
		raw, err := readManifest(ctx, from, d)
		if err == nil {
			raw, err = selectManifest(ctx, from, raw, want)
		}
		var r *resolved
		if err == nil {
			r, err = resolveManifest(ctx, from, raw, want, limits)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", names[0], err)
		}
		all = append(all, loaded{r, names})
	}
	if len(all) == 0 && len(index.Manifests) > 0 {
		return nil, platformError(want, nil)
	}
	return all, nil
}

// loadNames checks the names of an image, and brings them into the form in which names of registries are stored.
func loadNames(n, of int, tags []string) ([]string, error) {
	tags = slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return tag == "" })
	switch {
	case n >= maxLoad || len(tags) > maxLoad:
		return nil, fmt.Errorf("%w: it holds %d images, and %d names of one; at most %d are loaded", ErrLimit, of, len(tags), maxLoad)
	case len(tags) == 0:
		return nil, fmt.Errorf("%w: image %d of %d has no name, as docker save NAME:TAG gives it; docker-archive:FILE or oci:DIR runs it without", ErrReference, n+1, of)
	}
	names := make([]string, 0, len(tags))
	for _, tag := range tags {
		if err := checkReference(tag); err != nil {
			return nil, err
		}
		full, ok := loadName(tag)
		if !ok {
			return nil, fmt.Errorf("%w: the archive calls an image %.200q, which msb run would not take for its name; save it under another, or run docker-archive:FILE or oci:DIR", ErrReference, tag)
		}
		names = append(names, full)
	}
	return names, nil
}

// loadName brings a tag into the form in which names of registries are stored; !ok if no image can be loaded under it.
func loadName(tag string) (full string, ok bool) {
	t, err := name.NewTag(tag)
	if err != nil || tag == builtinRef || slices.ContainsFunc([]string{ociPrefix, archivePrefix, dirPrefix}, func(p string) bool { return strings.HasPrefix(tag, p) }) {
		return "", false
	}
	return t.Name(), true
}

// CheckLoadName says whether an image may be given this name by Load: NAME or NAME:TAG, as a registry's. ErrReference.
func CheckLoadName(tag string) error {
	if err := checkReference(tag); err != nil {
		return err
	}
	if _, ok := loadName(tag); !ok {
		return fmt.Errorf("%w: %.200q names no image of the cache's; write NAME or NAME:TAG, such as web:2", ErrReference, tag)
	}
	return nil
}

// archiveBlobs reads the blobs of an OCI layout in an archive.
type archiveBlobs struct{ a *archive }

var _ blobs = (*archiveBlobs)(nil)

func (b *archiveBlobs) manifest(_ context.Context, d digest) ([]byte, error) {
	return b.a.read("blobs/" + d.algorithm + "/" + d.hex)
}

func (b *archiveBlobs) blob(_ context.Context, d digest) (io.ReadCloser, error) {
	r, err := b.a.find("blobs/" + d.algorithm + "/" + d.hex)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.NewSectionReader(r, 0, r.Size())), nil
}

// manifest is the archive's manifest.json.
func (a *archive) manifest() ([]archiveManifest, error) {
	raw, err := a.read("manifest.json")
	if err != nil {
		return nil, err
	}
	if err := checkJSON("manifest.json", raw); err != nil {
		return nil, err
	}
	var images []archiveManifest
	if err := json.Unmarshal(raw, &images); err != nil {
		return nil, fmt.Errorf("%w: manifest.json is malformed: %w", errArchive, err)
	}
	return images, nil
}
