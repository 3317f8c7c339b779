package image

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// Builtin is the image that comes with the program.
type Builtin struct {
	// Digest is "sha256:…" over the content and the configuration; it keys the cache.
	Digest string
	// Config is how to run it.
	Config Config
	// Open returns a tar stream, plain or compressed with gzip or zstd. It is
	// called only when the cache has no disk for Digest.
	Open func() (io.ReadCloser, error)
}

// StoreOptions are the parts of a Store that its owner chooses. The zero value works.
type StoreOptions struct {
	// Builtin supplies the image "builtin"; nil when there is none.
	Builtin func() (Builtin, error)
	// sizeLimits bound each image.
	limits sizeLimits
	// dialPolicy judges each address before a registry connection is made to it. nil is the
	// default policy, which allows the registry's own host and refuses redirects to
	// special-purpose addresses.
	dialPolicy func(dialTarget) error
	// transport makes registry requests in place of a transport with dialPolicy.
	transport http.RoundTripper

	// stallTimeout is shortened by tests; 0 is the default.
	stallTimeout time.Duration
}

// dialTarget is an address that a pull is about to connect to.
type dialTarget struct {
	// registry is the host of the reference, as the user wrote it, without port.
	registry string
	// host is the host of the request, registry or what it redirected to.
	host string
	// addr is the exact address.
	addr netip.AddrPort
}

// Store is a cache of root disks under one directory. It is safe for concurrent use
// by several goroutines and processes.
type Store struct {
	dir  string
	opts StoreOptions
	now  func() time.Time
}

// Open opens or creates the cache under dir and removes what killed pulls left.
func Open(dir string, opts StoreOptions) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the image cache: %w", err)
	}
	opts.limits = opts.limits.withDefaults()
	s := &Store{dir: dir, opts: opts, now: time.Now}
	for _, sub := range []string{disksDir, refsDir, tmpDir, locksDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, spaceError(dir, fmt.Errorf("open the image cache: %w", err))
		}
		if info, err := os.Lstat(filepath.Join(dir, sub)); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("open the image cache: %s is no directory, and links are not followed here: %w", filepath.Join(dir, sub), errors.Join(err, fs.ErrInvalid))
		}
	}
	if err := s.cleanStaging(); err != nil {
		return nil, fmt.Errorf("open the image cache: %w", err)
	}
	return s, nil
}

func (s *Store) lockPath(d digest) string {
	return filepath.Join(s.dir, locksDir, d.fileName()+lockSuffix)
}
