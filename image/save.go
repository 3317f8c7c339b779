package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// SaveOptions are the choices of one Save.
type SaveOptions struct {
	// Progress is told what happens; nil for silence.
	Progress Progress
}

// Save writes images of the cache to w, as an archive that docker load and Load read: their configurations and layers to
// the byte. The cache keeps no layers, so that they are read again from where the image came from, by the digest that the
// cache has. It is an error if they are there no longer, and for images without layers. After an error the archive is not
// whole.
func (s *Store) Save(ctx context.Context, w io.Writer, refs []string, o SaveOptions) error {
	out := &archiveWriter{tar: tar.NewWriter(w), written: make(map[string]bool)}
	for _, ref := range refs {
		rep := newReporter(ref, o.Progress, s.now)
		rep.phase(PhaseResolving)
		if err := s.save(ctx, out, ref, rep); err != nil {
			rep.phase(PhaseFailed)
			return fmt.Errorf("save image %.200q: %w", ref, err)
		}
		rep.done(false)
	}
	return out.finish()
}

func (s *Store) save(ctx context.Context, out *archiveWriter, ref string, rep *reporter) error {
	d, err := s.Inspect(ref)
	if err != nil {
		return err
	}
	r, err := s.again(ctx, d, ref)
	if err != nil {
		return err
	}
	if r.close != nil {
		defer r.close()
	}
	rep.startFetch(r.layers)
	entry := archiveManifest{Config: sha256Of(r.raw).hex + ".json", RepoTags: repoTags(d.Refs), Layers: []string{}}
	for _, l := range r.layers {
		member, err := out.layer(ctx, l, rep)
		if err != nil {
			return fmt.Errorf("layer %s: %w", l.label(), err)
		}
		entry.Layers = append(entry.Layers, member)
	}
	if err := out.member(entry.Config, r.raw); err != nil {
		return err
	}
	if !slices.ContainsFunc(out.images, func(m archiveManifest) bool { return m.Config == entry.Config }) { // named twice
		out.images = append(out.images, entry)
	}
	return nil
}

// errNoLayers says that an image can't be saved.
var errNoLayers = fmt.Errorf("%w: the cache keeps the disk that was made of an image, and not its layers", ErrNotFound)

// again reads what the image is from where it came from.
func (s *Store) again(ctx context.Context, d *Details, asked string) (*resolved, error) {
	if d.ConfigFile == nil || len(d.Refs) == 0 {
		return nil, fmt.Errorf("%w; this one came from nowhere that has them, or an older msb fetched it: msb image pull brings an image with a name again", errNoLayers)
	}
	from := d.Refs[0]
	for _, name := range refNames(asked) {
		if slices.Contains(d.Refs, name) {
			from = name
		}
	}
	src, err := s.parseReference(from)
	if err != nil {
		return nil, err
	}
	if r, ok := src.(registrySource); ok {
		if slices.ContainsFunc(d.Layers, func(l Layer) bool { return l.Digest == "" }) { // of an archive, which has no manifest that a registry could have
			return nil, fmt.Errorf("%w; this one was made by msb commit, or brought by msb image load in docker's format, and no registry has it: keep that archive, or the sandbox by msb snapshot export", errNoLayers)
		}
		r.ref = r.ref.Context().Digest(d.Digest) // what its tag means may have changed
		src = r
	}
	r, err := src.resolve(ctx, d.Platform, s.opts.limits)
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("%w, and %s has it no longer; what msb image load brought is in that archive: %w", errNoLayers, from, err)
	}
	if err != nil {
		return nil, err
	}
	if r.digest.String() != d.Digest {
		if r.close != nil {
			r.close()
		}
		return nil, fmt.Errorf("%w, and %s is another image now (%s)", errNoLayers, from, r.digest)
	}
	return r, nil
}

// repoTags are the references that docker takes for names, as it writes them.
func repoTags(refs []string) []string {
	var tags []string
	for _, ref := range refs {
		t, err := name.NewTag(ref)
		if err != nil || strings.HasPrefix(ref, ociPrefix) || strings.HasPrefix(ref, archivePrefix) {
			continue
		}
		tags = append(tags, strings.Replace(t.Name(), name.DefaultRegistry+"/", "docker.io/", 1))
	}
	return tags
}

// archiveWriter writes what docker save does. A layer of several images is in it once.
type archiveWriter struct {
	tar     *tar.Writer
	written map[string]bool
	images  []archiveManifest
}

func (a *archiveWriter) finish() error {
	b, err := json.Marshal(a.images)
	if err != nil {
		return err
	}
	return errors.Join(a.member("manifest.json", b), a.tar.Close())
}

func (a *archiveWriter) member(name string, content []byte) error {
	if a.written[name] {
		return nil
	}
	a.written[name] = true
	if err := a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
		return err
	}
	_, err := a.tar.Write(content)
	return err
}

// layer copies a layer as its source has it, and returns its name.
func (a *archiveWriter) layer(ctx context.Context, l layerSource, rep *reporter) (string, error) {
	_, hex, _ := strings.Cut(l.label(), ":")
	member := hex + ".tar"
	if a.written[member] {
		return member, nil
	}
	a.written[member] = true
	rc, err := l.open(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = rc.Close() }()
	if err := a.tar.WriteHeader(&tar.Header{Name: member, Mode: 0o644, Size: l.size, Typeflag: tar.TypeReg}); err != nil {
		return "", err
	}
	counted := &countingReader{r: rc, limit: l.size, count: func(n int64) { rep.fetched(l.label(), n) }}
	hashed := newHashReader(counted, orSHA256(l.digest))
	n, err := io.Copy(a.tar, hashed)
	if err == nil && n != l.size {
		err = fmt.Errorf("%w: it has %d bytes, its descriptor says %d", ErrDigest, n, l.size)
	}
	if err != nil {
		return "", err
	}
	rep.layerDone(l.label())
	return member, hashed.check(l.digest, "the layer")
}
