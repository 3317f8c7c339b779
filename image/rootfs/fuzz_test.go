package rootfs

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLayer: any bytes as two layers of one image never panic, stay within the
// budget, write nothing but the spool, and give a stream of sound names.
func FuzzLayer(f *testing.F) {
	for _, items := range [][]item{
		{dir("d"), file("d/a", "hello"), symlink("l", "d"), file("l/b", "x"), hardlink("h", "d/a")},
		{file(".wh.d", ""), file("d/.wh..wh..opq", ""), file("../x", "")},
		{symlink("a", "b"), symlink("b", "a"), file("a/x", "")},
		{{name: "x", flag: tar.TypeReg, pax: map[string]string{"SCHILY.xattr.user.a": "b"}}},
		{{name: "dev", flag: tar.TypeChar, dev: 1}, {name: "p", flag: tar.TypeFifo}},
	} {
		f.Add(tarOf(f, items...), tarOf(f, items...))
	}
	f.Fuzz(func(t *testing.T, lower, upper []byte) {
		directory := t.TempDir()
		budget := &Budget{TotalBytes: 1 << 20, FileBytes: 1 << 18, Entries: 200, MetadataBytes: 1 << 18}
		tree := NewTree(budget)
		for i, stream := range [][]byte{lower, upper} {
			spool, err := os.Create(filepath.Join(directory, fmt.Sprint("spool", i)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = spool.Close() }()
			l, err := ReadLayer(t.Context(), bytes.NewReader(stream), NewSpool(spool), budget)
			if err == nil {
				err = tree.Apply(l)
			}
			if err != nil {
				if !errors.Is(err, ErrHostile) && !errors.Is(err, ErrLimit) {
					t.Fatalf("an error without a sentinel: %v", err)
				}
				break
			}
		}
		tree.Mask()
		var out bytes.Buffer
		if err := tree.WriteTar(t.Context(), &out, func(int64) {}); err != nil {
			t.Fatalf("a tree that was accepted can't be written: %v", err)
		}
		checkStream(t, &out)
		left, err := os.ReadDir(directory)
		if err != nil || len(left) > 2 {
			t.Fatalf("something was written beside the spools: %v %v", left, err)
		}
	})
}

// checkStream holds what ext4disk.Write relies on: parents first, names once,
// hard links after their targets.
func checkStream(t *testing.T, r io.Reader) {
	t.Helper()
	seen := map[string]byte{}
	tr := tar.NewReader(r)
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(hdr.Name, "/")
		if _, dup := seen[name]; dup {
			t.Fatalf("%q comes twice", name)
		}
		if i := strings.LastIndexByte(name, '/'); i >= 0 && seen[name[:i]] != tar.TypeDir {
			t.Fatalf("%q comes before its directory", name)
		}
		if hdr.Typeflag == tar.TypeLink {
			if _, ok := seen[hdr.Linkname]; !ok {
				t.Fatalf("%q comes before its target %q", name, hdr.Linkname)
			}
		}
		for part := range strings.SplitSeq(name, "/") {
			if name != "." && (part == "" || part == "." || part == ".." || part == ".msb" && part == name) {
				t.Fatalf("unsound name %q", name)
			}
		}
		seen[name] = hdr.Typeflag
	}
}
