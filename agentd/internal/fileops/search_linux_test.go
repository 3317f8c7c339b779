package fileops

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestSearchNamesFiles(t *testing.T) {
	t.Parallel()
	const one, two = "placeholder-one", "placeholder-two"
	dir, outside := t.TempDir(), t.TempDir()
	pad := strings.Repeat("x", searchBytes-5)
	for name, text := range map[string]string{
		"a": one, "b/c/d": "in the middle " + two + " of it", "between-pieces": pad + one, "none": "placeholder-", "empty": "", "end": pad + pad + two, "b/e": "nothing", "\xff\n": one,
		"../" + filepath.Base(outside) + "/f": one,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link")), os.Symlink(outside+"/f", filepath.Join(dir, "linked")), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	got, more, err := Search(t.Context(), root, [][]byte{[]byte(one), []byte(two)})
	if want := []string{"/a", "/b/c/d", "/between-pieces", "/end", "/\xff\n"}; err != nil || more || !slices.Equal(got, want) {
		t.Errorf("%q, %v, %v; want %q", got, more, err, want)
	}
	for i := range maxFound {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("many-%03d", i)), []byte(one), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, more, err := Search(t.Context(), root, [][]byte{[]byte(one)}); err != nil || !more || len(got) != maxFound {
		t.Errorf("%d files, %v, %v; want %d and more", len(got), more, err, maxFound)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Search(ctx, root, [][]byte{[]byte(one)}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
