package diskstore

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChunksInUseAreNotSwept: while chunks are read for a restore, a clone or an export, and while a snapshot is made, no
// removal's sweep can take them away. Before and after it can.
func TestChunksInUseAreNotSwept(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	swept := func() bool {
		lock, err := s.tryLock(unix.LOCK_EX)
		if err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			t.Error(err)
		}
		return err == nil && lock.Close() == nil
	}
	looks := 0
	look := func() {
		if looks++; swept() {
			t.Error("a sweep could take away what is being read")
		}
	}
	s.free = func(string) (int64, error) { look(); return 1 << 50, nil }
	for what, do := range map[string]func() error{
		"a snapshot": func() error { take(t, s, "b", aDisk(t, chunkBytes, 0)); return nil },
		"a disk": func() error {
			_, err := s.WriteDisk(t.Context(), "a", filepath.Join(t.TempDir(), "disk"))
			return err
		},
		"an archive": func() error {
			return s.Export(t.Context(), "a", writeFunc(func(b []byte) (int, error) { look(); return len(b), nil }), func(*Meta) (*Manifest, error) { return new(Manifest), nil })
		},
	} {
		take(t, s, "a", aDisk(t, chunkBytes, 0))
		looks = 0
		if err := do(); err != nil || looks == 0 {
			t.Errorf("%s: %v, with %d looks", what, err, looks)
		}
		if !swept() {
			t.Errorf("after %s nothing can be swept any more", what)
		}
		must(t, s.Remove("a"))
	}
}

type writeFunc func([]byte) (int, error)

func (f writeFunc) Write(b []byte) (int, error) { return f(b) }
