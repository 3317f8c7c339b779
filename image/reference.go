package image

import (
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/google/go-containerregistry/pkg/name"
)

// Prefixes of references to images on this machine.
const (
	builtinRef    = "builtin"
	ociPrefix     = "oci:"
	archivePrefix = "docker-archive:"
	dirPrefix     = "dir:"
)

// maxReferenceBytes bounds what is parsed and shown: registries allow 255 bytes
// of repository, paths have 4096.
const maxReferenceBytes = 5 << 10

// IsPortable reports whether a reference means an image on other machines too: in a registry, or the built-in one.
func IsPortable(ref string) bool {
	if ref == builtinRef {
		return true
	}
	for _, local := range []string{ociPrefix, archivePrefix, dirPrefix} {
		if strings.HasPrefix(ref, local) {
			return false
		}
	}
	_, err := parseRegistry(ref)
	return err == nil && checkReference(ref) == nil
}

// SameReference reports whether two references mean one image of a registry, or are the same text: alpine is
// docker.io/library/alpine:latest.
func SameReference(a, b string) bool {
	if a == b {
		return true
	}
	if !IsPortable(a) || !IsPortable(b) || a == builtinRef || b == builtinRef {
		return false
	}
	x, errX := parseRegistry(a)
	y, errY := parseRegistry(b)
	return errX == nil && errY == nil && x.Name() == y.Name()
}

// source is the reading side of a parsed reference.
type source interface {
	// canonical is the key under which the cache remembers the reference; ""
	// when the source is on this machine and is asked every time.
	canonical() string
	resolver
}

func (s *Store) parseReference(ref string) (source, error) {
	if err := checkReference(ref); err != nil {
		return nil, err
	}
	if ref == builtinRef {
		return builtinSource{open: s.opts.Builtin}, nil
	}
	if p, ok := strings.CutPrefix(ref, ociPrefix); ok {
		return parseOCI(p)
	}
	if p, ok := strings.CutPrefix(ref, archivePrefix); ok {
		return archiveSource{path: p, store: s}, nonEmpty(ref, p)
	}
	if p, ok := strings.CutPrefix(ref, dirPrefix); ok {
		return dirSource{path: p}, nonEmpty(ref, p)
	}
	r, err := parseRegistry(ref)
	if err != nil {
		return nil, err
	}
	return registrySource{ref: r, opts: &s.opts}, nil
}

func parseRegistry(ref string) (name.Reference, error) {
	if scheme, rest, ok := strings.Cut(ref, "://"); ok {
		return nil, fmt.Errorf("%w: %q: leave %q out and write %q", ErrReference, ref, scheme+"://", rest)
	}
	r, err := name.ParseReference(ref)
	if err == nil {
		return r, nil
	}
	remedy := "write NAME[:TAG], HOST/NAME[:TAG], oci:DIR, docker-archive:FILE, dir:PATH or builtin"
	if small := strings.ToLower(ref); small != ref {
		if _, ok := name.ParseReference(small); ok == nil {
			remedy = fmt.Sprintf("did you mean %q?", small)
		}
	}
	return nil, fmt.Errorf("%w: %q: %w; %s", ErrReference, ref, err, remedy)
}

// CheckReference says what is wrong with a reference, wrapped in ErrReference. Nothing is opened or asked.
func CheckReference(ref string) error {
	if err := checkReference(ref); err != nil {
		return err
	}
	for _, local := range []string{ociPrefix, archivePrefix, dirPrefix} {
		if path, ok := strings.CutPrefix(ref, local); ok {
			return nonEmpty(ref, path)
		}
	}
	_, err := parseRegistry(ref)
	return err
}

func checkReference(ref string) error {
	if ref == "" {
		return fmt.Errorf("%w: it is empty; name an image, for example \"alpine\" or \"builtin\"", ErrReference)
	}
	if len(ref) > maxReferenceBytes {
		return fmt.Errorf("%w: it is longer than %d bytes", ErrReference, maxReferenceBytes)
	}
	if ref[0] == '/' || ref[0] == '.' || ref[0] == '~' {
		return fmt.Errorf("%w: %q is a path; write %q for a directory, docker-archive:FILE or oci:DIR for an image, and a command behind \"--\"",
			ErrReference, ref, dirPrefix+ref)
	}
	if ref[0] == '-' {
		return fmt.Errorf("%w: %q looks like a flag", ErrReference, ref)
	}
	if strings.ContainsFunc(ref, unicode.IsControl) {
		return fmt.Errorf("%w: %q holds control characters", ErrReference, ref)
	}
	return nil
}

func nonEmpty(ref, path string) error {
	if path == "" {
		return fmt.Errorf("%w: %q names no path", ErrReference, ref)
	}
	return nil
}

// parseOCI reads DIR, DIR:TAG or DIR@DIGEST. A directory whose name has a colon is
// taken whole when it is there.
func parseOCI(p string) (source, error) {
	if p == "" {
		return nil, nonEmpty(ociPrefix, p)
	}
	if st, err := os.Stat(p); err == nil && st.IsDir() {
		return ociSource{dir: p}, nil
	}
	if dir, digest, ok := strings.Cut(p, "@"); ok {
		if _, err := parseDigest(digest); err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrReference, ociPrefix+p, err)
		}
		return ociSource{dir: dir, digest: digest}, nil
	}
	if i := strings.LastIndexByte(p, ':'); i > 0 && !strings.Contains(p[i:], "/") {
		return ociSource{dir: p[:i], tag: p[i+1:]}, nil
	}
	return ociSource{dir: p}, nil
}

// ShortName is a reference as people write it: without the registry that names without one mean.
func ShortName(ref string) string {
	short := strings.TrimPrefix(strings.TrimPrefix(ref, name.DefaultRegistry+"/"), "library/")
	if r, err := name.ParseReference(short); err != nil || r.Name() != ref {
		return ref
	}
	return short
}
