package policies

import (
	"crypto/sha256"
	"path/filepath"
	"strings"
)

// LoadSources is Load that also names the files it read, path first, the
// included ones after it; also where it fails. Whoever follows a policy watches
// all of them.
func LoadSources(path string) (p *Policy, sources []string, err error) {
	open := func(file string) ([]byte, error) {
		sources = append(sources, file)
		return readFile(file)
	}
	data, err := open(path)
	if err != nil {
		return nil, sources, err
	}
	if p, err = (&loader{open: open, abs: true}).load(path, data); err != nil {
		return nil, sources, err
	}
	p.Path = absolute(path)
	p.Included, p.Outside = sources[1:], outside(path, sources[1:])
	return p, sources, nil
}

// Fingerprint is a hash of the policy file at path, read as LoadSources does: no
// longer than a policy may be, and without waiting for what is no regular file.
func Fingerprint(path string) ([sha256.Size]byte, error) {
	data, err := readFile(path)
	return sha256.Sum256(data), err
}

// outside returns the real paths of those files that aren't below the directory
// of path. What can't be resolved is outside.
func outside(path string, files []string) []string {
	dir := realPath(filepath.Dir(path))
	var out []string
	for _, file := range files {
		file = realPath(file)
		rel, err := filepath.Rel(dir, file)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			out = append(out, file)
		}
	}
	return out
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path // without a working directory
}

// realPath resolves what it can of a path.
func realPath(path string) string {
	path = absolute(path)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
