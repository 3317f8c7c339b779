package grants

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/msb-project/msb/policies"
)

// TestI11_TreesAreReadInBounds counts one entry more than may be, and one byte more.
func TestI11_TreesAreReadInBounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 10), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		before counter
		want   error
	}{
		"room":             {counter{entries: maxEntries - 1, bytes: maxContent - 10}, nil},
		"too many entries": {counter{entries: maxEntries}, errTooMuch},
		"too many bytes":   {counter{bytes: maxContent - 9}, errTooMuch},
	} {
		count := c.before
		count.sum, count.hold = sha256.New(), &policies.Hold{Trees: []string{dir}}
		if err := count.entry(filepath.Join(dir, "file"), entries[0], nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	unreadable := counter{entries: maxEntries, sum: sha256.New(), hold: &policies.Hold{Trees: []string{dir}}}
	if err := unreadable.entry(filepath.Join(dir, "gone"), nil, fs.ErrPermission); !errors.Is(err, errTooMuch) {
		t.Errorf("one entry too many that can't be read: %v", err)
	}
}
