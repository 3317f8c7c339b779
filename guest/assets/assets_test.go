package guest

import (
	"errors"
	"io"
	"testing"
)

func TestPartsAreWholeOrNamedAsMissing(t *testing.T) {
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
		if err != nil || n < 1<<20 || len(digest) != 64 {
			t.Errorf("%s: %d bytes, digest %q, %v", p.name, n, digest, err)
		}
	}
	if _, err := (Part{"no-such"}).Open(); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v", err)
	}
}
