package image

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"strings"
)

// digest is an algorithm and lower-case hex, checked: it is used as a file name.
type digest struct{ algorithm, hex string }

func (d digest) String() string { return d.algorithm + ":" + d.hex }

// fileName is the digest without the colon.
func (d digest) fileName() string { return d.algorithm + "-" + d.hex }

func (d digest) hasher() hash.Hash {
	if d.algorithm == "sha512" {
		return sha512.New()
	}
	return sha256.New()
}

// parseDigest reads "sha256:…" or "sha512:…", the algorithms of the OCI image
// specification.
func parseDigest(s string) (digest, error) {
	algorithm, digits, _ := strings.Cut(s, ":")
	size := map[string]int{"sha256": sha256.Size, "sha512": sha512.Size}[algorithm]
	raw, err := hex.DecodeString(digits)
	if size == 0 || err != nil || len(raw) != size || strings.ToLower(digits) != digits {
		return digest{}, fmt.Errorf("%q is no sha256 or sha512 digest", s)
	}
	return digest{algorithm, digits}, nil
}

func sha256Of(b []byte) digest {
	sum := sha256.Sum256(b)
	return digest{"sha256", hex.EncodeToString(sum[:])}
}

// verifyBytes checks small content.
func (d digest) verifyBytes(what string, b []byte) error {
	h := d.hasher()
	_, _ = h.Write(b)
	if got := hex.EncodeToString(h.Sum(nil)); got != d.hex {
		return fmt.Errorf("%w: %s has digest %s:%s, %s was asked for", ErrDigest, what, d.algorithm, got, d)
	}
	return nil
}

// hashReader hashes and counts what passes.
type hashReader struct {
	r io.Reader
	h hash.Hash
	n int64
}

func newHashReader(r io.Reader, d digest) *hashReader { return &hashReader{r: r, h: d.hasher()} }

func (r *hashReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	_, _ = r.h.Write(p[:n])
	r.n += int64(n)
	return n, err
}

func (r *hashReader) sum() string { return hex.EncodeToString(r.h.Sum(nil)) }

func (r *hashReader) check(want *digest, what string) error {
	if want == nil {
		return nil
	}
	if got := r.sum(); got != want.hex {
		return fmt.Errorf("%w: %s has digest %s:%s, the image says %s", ErrDigest, what, want.algorithm, got, want)
	}
	return nil
}
