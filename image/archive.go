package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
)

const (
	// maxArchiveLinks bounds links between members; old archives have one for a layer
	// that is in two images.
	maxArchiveLinks = 8
	// maxArchiveMembers bounds the members of one archive: docker save writes four for a layer.
	maxArchiveMembers = 16 << 10
	// maxMemberName bounds the name of a member and the target of a link; those that tools write have a digest
	// and under 100 bytes. Bytes.
	maxMemberName = 4 << 10
)

// errArchive is an ErrConfig whose sentence is about the file and not about its configuration.
var errArchive error = archiveFault{}

type archiveFault struct{}

func (archiveFault) Error() string { return "no archive of an image, or a damaged one" }

func (archiveFault) Unwrap() error { return ErrConfig }

// member is a file, or a link to one, inside an archive.
type member struct {
	offset, size int64
	link         string
}

type archive struct {
	f       *os.File
	members map[string]member
	names   int64 // bytes of names and links
}

func isCompressed(f *os.File) (bool, error) {
	head := make([]byte, len(zstdMagic))
	n, _ := io.ReadFull(f, head)
	_, err := f.Seek(0, io.SeekStart)
	return bytes.HasPrefix(head[:n], gzipMagic) || bytes.Equal(head[:n], zstdMagic), err
}

// index takes the members of the archive that tr reads; place says where in the file the contents of the last one start.
func (a *archive) index(tr *tar.Reader, place func() (int64, error), limits sizeLimits) error {
	for n := 0; ; n++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return indexError(err)
		}
		if n >= min(limits.entries, maxArchiveMembers) {
			return fmt.Errorf("%w: more than %d members", ErrLimit, min(limits.entries, maxArchiveMembers))
		}
		offset, err := place()
		if err != nil {
			return err
		}
		if err := a.add(hdr, offset, limits); err != nil {
			return err
		}
	}
}

// indexError tells a file that is no tar from one that can't be unpacked.
func indexError(err error) error {
	for _, known := range []error{ErrLimit, ErrHostile, syscall.ENOSPC, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("%w: %w; docker save writes a sound one", errArchive, err)
}

// add takes one member. Names are copied: as parts of a header they would keep a megabyte of it.
func (a *archive) add(hdr *tar.Header, offset int64, limits sizeLimits) error {
	if len(hdr.Name) > maxMemberName || len(hdr.Linkname) > maxMemberName {
		return fmt.Errorf("%w: the name of member %.80q… or its link has more than %d bytes", ErrLimit, hdr.Name, maxMemberName)
	}
	if a.names += int64(len(hdr.Name) + len(hdr.Linkname)); a.names > limits.metadataBytes {
		return fmt.Errorf("%w: the names of its members take more than %d bytes", ErrLimit, limits.metadataBytes)
	}
	name := path.Clean(strings.Clone(hdr.Name))
	switch hdr.Typeflag {
	case tar.TypeReg:
		a.members[name] = member{offset: offset, size: hdr.Size}
	case tar.TypeSymlink:
		a.members[name] = member{link: path.Join(path.Dir(name), strings.Clone(hdr.Linkname))}
	case tar.TypeLink:
		a.members[name] = member{link: path.Clean(strings.Clone(hdr.Linkname))}
	}
	return nil
}

// find follows links between members; a name that is no member is an error, so
// that nothing outside the archive is ever opened.
func (a *archive) find(name string) (*io.SectionReader, error) {
	at := path.Clean(name)
	for range maxArchiveLinks {
		m, ok := a.members[at]
		if !ok {
			return nil, fmt.Errorf("%w: it has no member %q; docker save writes a sound one", errArchive, name)
		}
		if m.link == "" {
			return io.NewSectionReader(a.f, m.offset, m.size), nil
		}
		at = m.link
	}
	return nil, fmt.Errorf("%w: member %q is a link that leads nowhere", errArchive, name)
}

func (a *archive) read(name string) ([]byte, error) {
	r, err := a.find(name)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxConfigBytes {
		return nil, fmt.Errorf("%w: member %q has more than %d bytes", ErrLimit, name, maxConfigBytes)
	}
	return io.ReadAll(r)
}

// archiveManifest is an entry of manifest.json.
type archiveManifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

func (a *archive) resolve(want Platform, limits sizeLimits) (*resolved, error) {
	images, err := a.manifest()
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		var tags []string
		for _, m := range images {
			tags = append(tags, m.RepoTags...)
		}
		return nil, fmt.Errorf("%w: it holds %d images (%.200q); save one image only", ErrReference, len(images), tags)
	}
	return a.resolveEntry(&images[0], want, limits)
}

// resolveEntry reads the configuration of one image and lines its layers up.
func (a *archive) resolveEntry(m *archiveManifest, want Platform, limits sizeLimits) (*resolved, error) {
	rawConfig, err := a.read(m.Config)
	if err != nil {
		return nil, err
	}
	config, err := parseConfigFile(rawConfig)
	if err != nil {
		return nil, err
	}
	if !want.runs(config.platform) {
		return nil, platformError(want, []string{config.platform.String()})
	}
	if len(m.Layers) != len(config.diffIDs) || len(m.Layers) > limits.layers {
		return nil, fmt.Errorf("%w: it lists %d layers, its configuration %d; at most %d are allowed",
			ErrConfig, len(m.Layers), len(config.diffIDs), limits.layers)
	}
	// The configuration names every layer by digest: its own digest is the image's.
	res := &resolved{digest: sha256Of(rawConfig), config: config.config, platform: config.platform, raw: rawConfig}
	for i, name := range m.Layers {
		r, err := a.find(name)
		if err != nil {
			return nil, err
		}
		res.layers = append(res.layers, layerSource{
			size: r.Size(), diffID: &config.diffIDs[i],
			open: func(context.Context) (io.ReadCloser, error) {
				// Two layers may be one member: each reads at its own place.
				return io.NopCloser(io.NewSectionReader(r, 0, r.Size())), nil
			},
		})
	}
	return res, checkConfigName(m.Config, res.digest)
}

// checkConfigName compares the configuration with the digest that its name is.
func checkConfigName(name string, d digest) error {
	base := strings.TrimSuffix(path.Base(name), ".json")
	if want, err := parseDigest("sha256:" + base); err == nil && want != d {
		return fmt.Errorf("%w: member %q has digest %s", ErrDigest, name, d)
	}
	return nil
}
