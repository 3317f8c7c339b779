package image

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
)

// archiveSource is a file as "docker save" writes it, plain or compressed.
type archiveSource struct{ path string }

var _ source = archiveSource{}

// maxArchiveLinks bounds links between members; old archives have one for a layer
// that is in two images.
const maxArchiveLinks = 8

func (a archiveSource) canonical() string { return "" }

func (a archiveSource) resolve(_ context.Context, want Platform, limits Limits) (*resolved, error) {
	ar, err := openArchive(a.path, limits)
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

// member is a file, or a link to one, inside an archive.
type member struct {
	offset, size int64
	link         string
}

type archive struct {
	f       *os.File
	members map[string]member
}

// openArchive indexes the members. A compressed archive is unpacked into a nameless
// file first, since its members are not read in their order.
func openArchive(name string, limits Limits) (*archive, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, localError(name, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no file; write oci:DIR or dir:PATH for folders", ErrReference, name)
	}
	if err == nil {
		f, err = unpackArchive(f, limits)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	a := &archive{f: f, members: make(map[string]member)}
	if err := a.index(limits); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("archive %s: %w", name, err)
	}
	return a, nil
}

// unpackArchive returns f itself when it is not compressed.
func unpackArchive(f *os.File, limits Limits) (*os.File, error) {
	head := make([]byte, len(zstdMagic))
	n, _ := io.ReadFull(f, head)
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return f, err
	}
	if !bytes.HasPrefix(head[:n], gzipMagic) && !bytes.Equal(head[:n], zstdMagic) {
		return f, nil
	}
	plain, err := decompress(f)
	if err != nil {
		return f, err
	}
	defer func() { _ = plain.Close() }()
	tmp, err := os.CreateTemp("", "msb-archive")
	if err != nil {
		return f, err
	}
	_ = os.Remove(tmp.Name())
	written, err := io.Copy(tmp, io.LimitReader(plain, limits.TotalBytes+1))
	if err == nil && written > limits.TotalBytes {
		err = fmt.Errorf("%w: it decompresses to more than %d bytes", ErrLimit, limits.TotalBytes)
	}
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		_ = tmp.Close()
		return f, err
	}
	_ = f.Close()
	return tmp, nil
}

func (a *archive) index(limits Limits) error {
	tr := tar.NewReader(a.f)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return fmt.Errorf("%w: it is not a tar file: %w", ErrConfig, err)
		}
		if len(a.members) > limits.Entries {
			return fmt.Errorf("%w: more than %d members", ErrLimit, limits.Entries)
		}
		// The tar reader does not read ahead, so that this is where contents start.
		offset, err := a.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		switch hdr.Typeflag {
		case tar.TypeReg:
			a.members[path.Clean(hdr.Name)] = member{offset: offset, size: hdr.Size}
		case tar.TypeSymlink:
			a.members[path.Clean(hdr.Name)] = member{link: path.Join(path.Dir(hdr.Name), hdr.Linkname)} //nolint:gosec // a key of a map, never a path of the host
		case tar.TypeLink:
			a.members[path.Clean(hdr.Name)] = member{link: path.Clean(hdr.Linkname)}
		}
	}
}

// find follows links between members; a name that is no member is an error, so
// that nothing outside the archive is ever opened.
func (a *archive) find(name string) (*io.SectionReader, error) {
	at := path.Clean(name)
	for range maxArchiveLinks {
		m, ok := a.members[at]
		if !ok {
			return nil, fmt.Errorf("%w: it has no member %q", ErrConfig, name)
		}
		if m.link == "" {
			return io.NewSectionReader(a.f, m.offset, m.size), nil
		}
		at = m.link
	}
	return nil, fmt.Errorf("%w: member %q is a link that leads nowhere", ErrConfig, name)
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

func (a *archive) resolve(want Platform, limits Limits) (*resolved, error) {
	raw, err := a.read("manifest.json")
	if err != nil {
		return nil, fmt.Errorf("it is not what docker save writes: %w", err)
	}
	var images []archiveManifest
	if err := json.Unmarshal(raw, &images); err != nil {
		return nil, fmt.Errorf("%w: manifest.json is malformed: %w", ErrConfig, err)
	}
	if len(images) != 1 {
		var tags []string
		for _, m := range images {
			tags = append(tags, m.RepoTags...)
		}
		return nil, fmt.Errorf("%w: it holds %d images (%.200q); save one image only", ErrReference, len(images), tags)
	}
	m := images[0]
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
	if len(m.Layers) != len(config.diffIDs) || len(m.Layers) > limits.Layers {
		return nil, fmt.Errorf("%w: it lists %d layers, its configuration %d; at most %d are allowed",
			ErrConfig, len(m.Layers), len(config.diffIDs), limits.Layers)
	}
	// The configuration names every layer by digest: its own digest is the image's.
	res := &resolved{digest: sha256Of(rawConfig), config: config.config, platform: config.platform}
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
