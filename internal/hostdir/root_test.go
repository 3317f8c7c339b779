//go:build linux

package hostdir

import (
	"os"
	"path/filepath"
	"testing"
)

// TestI14_DirectoriesAreOpenedWithoutLinks has a link come between the check of a directory's path and its opening.
func TestI14_DirectoriesAreOpenedWithoutLinks(t *testing.T) {
	t.Parallel()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(p string) string { return filepath.Join(top, p) }
	for _, d := range []string{"shared/cache", "private/cache"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"shared/link": "../private", "way": "private"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, opens := range map[string]bool{
		at("shared"): true, at("shared/cache"): true, at("shared/link"): false, at("way/cache"): false, at("file"): false, at("nosuch"): false, "shared": false,
	} {
		s, err := New(path, Options{})
		if (err == nil) != opens {
			t.Errorf("%s: %v, want it opened %t", path, err, opens)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
