package assets

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"testing"
)

func TestPartsAreCompleteOrMissing(t *testing.T) {
	t.Parallel()
	for _, p := range []Part{AgentRoot(), Builtin()} {
		digest, err := p.Digest()
		r, openErr := p.Open()
		if err != nil || openErr != nil {
			if !errors.Is(err, ErrNotBuilt) || !errors.Is(openErr, ErrNotBuilt) {
				t.Errorf("%s: %v, %v", p.name, err, openErr)
			}
			continue
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil || n < 1<<20 {
			t.Errorf("%s: %d bytes, %v", p.name, n, err)
		}
		b, err := files.ReadFile("bin/" + p.name)
		if sum := sha256.Sum256(b); err != nil || hex.EncodeToString(sum[:]) != digest {
			t.Errorf("%s: digest %s is not that of the file: run make build (%v)", p.name, digest, err)
		}
	}
	if r, err := VMM().Packed(); err == nil {
		magic := make([]byte, 4)
		if _, err := io.ReadFull(r, magic); err != nil || string(magic) != "\x7fELF" {
			t.Errorf("%s begins with %q, %v", VMM().Name(), magic, err)
		}
	} else if !errors.Is(err, ErrNotBuilt) {
		t.Error(err)
	}
	if _, err := (Part{"no-such"}).Open(); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v", err)
	}
}
