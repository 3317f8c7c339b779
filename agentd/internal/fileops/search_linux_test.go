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
	"time"
)

func TestSearchNamesFiles(t *testing.T) {
	t.Parallel()
	const one, two = "placeholder-one", "placeholder-two"
	dir, outside := t.TempDir(), t.TempDir()
	pad := strings.Repeat("x", searchBytes-5)
	for name, text := range map[string]string{
		"a": one, "b/c/d": "in the middle " + two + " of it", "between-pieces": pad + one, "cut-behind-first": strings.Repeat("x", searchBytes-1) + one, "cut-before-last": strings.Repeat("x", searchBytes-len(one)+1) + one, "none": "placeholder-", "empty": "", "end": pad + pad + two, "b/e": "nothing", "\xff\n": one,
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
	if want := []string{"/a", "/b/c/d", "/between-pieces", "/cut-before-last", "/cut-behind-first", "/end", "/\xff\n"}; err != nil || more || !slices.Equal(got, want) {
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

// TestI11_SearchesLeaveHolesOut: a sparse file of a terabyte, which costs a guest nothing, stopped a search for an hour.
func TestI11_SearchesLeaveHolesOut(t *testing.T) {
	t.Parallel()
	const text, size = "placeholder-one", 1 << 40
	dir := t.TempDir()
	for name, at := range map[string][]int64{"empty": nil, "end": {size - 100}, "pieces": {0, size / 2}, "after": {1 << 30}} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Skip("no files of that size here:", err)
		}
		for i, off := range at {
			part := text
			if name == "pieces" { // is nowhere whole
				part = text[i*5 : i*5+10]
			}
			if _, err := f.WriteAt([]byte(part), off); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got, more, err := Search(ctx, root, [][]byte{[]byte(text)}); err != nil || more || !slices.Equal(got, []string{"/after", "/end"}) {
		t.Errorf("%q, %v, %v", got, more, err)
	}
}

// TestI11_PathsOfSearchesAreBounded: long ones of few files, too.
func TestI11_PathsOfSearchesAreBounded(t *testing.T) {
	t.Parallel()
	const files = 90
	dir := t.TempDir()
	deep := filepath.Join(dir, strings.Repeat(strings.Repeat("d", 250)+"/", 14))
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(deep, fmt.Sprint(i)), []byte("placeholder"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	got, more, err := Search(t.Context(), root, [][]byte{[]byte("placeholder")})
	size := 0
	for _, name := range got {
		size += len(name)
	}
	if err != nil || !more || len(got) == files || size > maxFoundBytes+len(got) {
		t.Errorf("%d files with %d bytes, %v, %v", len(got), size, more, err)
	}
}

// TestSearchesFollowNoLinkThatTookAFilesPlace. The twin is the file.
func TestSearchesFollowNoLinkThatTookAFilesPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(dir+"/f", []byte("placeholder"), 0o600), os.Symlink("f", dir+"/link")); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s := &search{root: root, texts: [][]byte{[]byte("placeholder")}, longest: len("placeholder"), buf: make([]byte, 0, searchBytes)}
	if found, err := s.holds(t.Context(), "f"); !found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
	if found, _ := s.holds(t.Context(), "link"); found {
		t.Error("a link that took a file's place is followed")
	}
}
