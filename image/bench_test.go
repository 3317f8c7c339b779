package image

import (
	"bytes"
	"fmt"
	"io"
	"testing"
)

// BenchmarkBuild makes the disk of an image of 2,000 files and 64 MiB from a tar
// that is not compressed; BenchmarkCached is what each msb run after that pays.
func BenchmarkBuild(b *testing.B) {
	var files []string
	for i := range 2000 {
		files = append(files, fmt.Sprintf("usr/lib/dir%d/file%d", i%50, i), randomTextFor(32<<10))
	}
	content := layerOf(b, files...)
	b.SetBytes(int64(len(content)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := openStore(b, StoreOptions{Builtin: builtinOf(content, i)})
		if _, err := s.Resolve(b.Context(), "builtin", Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCached(b *testing.B) {
	s := openStore(b, StoreOptions{Builtin: builtinOf(layerOf(b, "a", "1"), 0)})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Resolve(b.Context(), "builtin", Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func builtinOf(content []byte, salt int) func() (Builtin, error) {
	return func() (Builtin, error) {
		return Builtin{
			Digest: sha256Of(fmt.Append(nil, salt)).String(),
			Open:   func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		}, nil
	}
}

func randomTextFor(n int) string { return string(bytes.Repeat([]byte("0123456789abcdef"), n/16)) }
