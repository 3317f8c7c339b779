package rotatetest

import (
	"os/signal"
	"testing"

	"golang.org/x/sys/unix"
)

// FullAt bounds the files of this process, as a full disk does: a write that crosses size comes as far as it, and fails
// with EFBIG. The returned function takes the bound away. Not for parallel tests.
func FullAt(t *testing.T, size uint64) (more func()) {
	t.Helper()
	signal.Ignore(unix.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(unix.SIGXFSZ) })
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	more = func() {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(more)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	return more
}
