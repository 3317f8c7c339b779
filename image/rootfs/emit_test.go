package rootfs

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"testing"
)

var errFull = errors.New("no space left")

// room fails once so many bytes were written.
type room int

func (r *room) Write(b []byte) (int, error) {
	if int(*r) < len(b) {
		n := int(*r)
		*r = 0
		return n, errFull
	}
	*r -= room(len(b))
	return len(b), nil
}

// TestI12_FullDisksAreAlwaysReported cuts the stream of a tree with every kind of entry at each block.
func TestI12_FullDisksAreAlwaysReported(t *testing.T) {
	t.Parallel()
	items := []item{
		dir("a"), file("a/f", string(make([]byte, 3000))), hardlink("a/g", "a/f"), symlink("a/h", "f"), file("a/empty", ""), dir("a/sub"), file("a/sub/x", "x"),
		{name: "a/char", flag: tar.TypeChar}, {name: "a/fifo", flag: tar.TypeFifo}, {name: "a/block", flag: tar.TypeBlock},
	}
	tree := func() *Tree {
		tree, err := flatten(t, items)
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	most := room(1 << 20)
	left := most
	files := 0
	if err := tree().WriteTar(t.Context(), &left, func(n int64) { files += int(n) }); err != nil || files != 3001 {
		t.Fatalf("%v, %d bytes of files", err, files)
	}
	for size := room(0); size < most-left; size += 512 {
		cut := size
		if err := tree().WriteTar(t.Context(), &cut, func(int64) {}); !errors.Is(err, errFull) {
			t.Errorf("%d bytes of room: %v", size, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tree().WriteTar(ctx, io.Discard, func(int64) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestI14_TooManyNamesAreRefused has one directory more than ext4 takes in a directory, and one name more of a file.
func TestI14_TooManyNamesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind  kind
		most  int
		words string
	}{{kindDir, maxHardLinks - 2, "subdirectories"}, {kindFile, maxHardLinks, "names"}} {
		for _, n := range []int{tt.most, tt.most + 1} {
			tree := NewTree(&Budget{TotalBytes: 1, FileBytes: 1, Entries: 1 << 20, MetadataBytes: 1 << 30})
			one := &node{kind: kindFile}
			tree.root.children = make(map[string]*node, n)
			for i := range n {
				name := string([]byte{'a' + byte(i>>12&15), 'a' + byte(i>>8&15), 'a' + byte(i>>4&15), 'a' + byte(i&15), 'a' + byte(i>>16)})
				tree.root.children[name] = one
				if tt.kind == kindDir {
					tree.root.children[name] = &node{kind: kindDir}
				}
			}
			err := tree.WriteTar(t.Context(), io.Discard, func(int64) {})
			if (err != nil) != (n > tt.most) {
				t.Errorf("%d of kind %d: %v", n, tt.kind, err)
			}
		}
	}
}
