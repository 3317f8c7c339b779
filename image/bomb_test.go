package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// tarOf writes headers without contents.
func tarOf(t testing.TB, n int, header func(i int) *tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		if err := w.WriteHeader(header(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// numbered is a name of n bytes.
func numbered(i, n int) string { return strings.Repeat("a", n-8) + fmt.Sprintf("%08d", i) }

// holds is what do leaves on the heap, in bytes, while what it returns is kept, and what it allocated in all. Tests that
// use it are not parallel.
func holds(do func() any) (kept, allocated int64) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	value := do()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(value)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc), int64(after.TotalAlloc - before.TotalAlloc)
}

// nothingLeft looks that the store is as Open makes it.
func nothingLeft(t *testing.T, s *Store) {
	t.Helper()
	for _, sub := range []string{disksDir, refsDir, tmpDir, locksDir} {
		if left, err := os.ReadDir(filepath.Join(s.dir, sub)); err != nil || len(left) != 0 {
			t.Errorf("left in %s: %v, %v", sub, left, err)
		}
	}
}

// TestI11_NamesOfArchiveMembersAreBounded: an archive of 2.2 MB took 2.95 GB, for names of a megabyte each.
func TestI11_NamesOfArchiveMembersAreBounded(t *testing.T) {
	small := sizeLimits{metadataBytes: 1 << 20}
	for name, tt := range map[string]struct {
		n      int
		header func(i int) *tar.Header
		limits sizeLimits
		refuse bool
	}{
		"names of a megabyte": {6, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, 1000<<10)} }, sizeLimits{}, true},
		"links of a megabyte": {6, func(i int) *tar.Header {
			return &tar.Header{Name: numbered(i, 50), Linkname: numbered(i, 1000<<10), Typeflag: tar.TypeSymlink}
		}, sizeLimits{}, true},
		"hard links of a megabyte": {6, func(i int) *tar.Header {
			return &tar.Header{Name: numbered(i, 50), Linkname: numbered(i, 1000<<10), Typeflag: tar.TypeLink}
		}, sizeLimits{}, true},
		"names over the limit": {1, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, maxMemberName+1)} }, sizeLimits{}, true},
		"names at the limit":   {1, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, maxMemberName)} }, sizeLimits{}, false},
		"many long names":      {300, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, maxMemberName)} }, small, true},
		"many long links": {300, func(i int) *tar.Header {
			return &tar.Header{Name: numbered(i, 9), Linkname: numbered(i, maxMemberName), Typeflag: tar.TypeLink}
		}, small, true},
		"names of what is no file":  {300, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, maxMemberName), Typeflag: tar.TypeFifo} }, small, true},
		"one name again and again":  {300, func(int) *tar.Header { return &tar.Header{Name: numbered(1, maxMemberName)} }, small, true},
		"many members":              {401, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, 9)} }, sizeLimits{entries: 400}, true},
		"as many members as may be": {400, func(i int) *tar.Header { return &tar.Header{Name: numbered(i, 9)} }, sizeLimits{entries: 400}, false},
	} {
		plainTar := tarOf(t, tt.n, tt.header)
		for codec, compress := range map[string]func(testing.TB, []byte) []byte{"plain": plain, "gzip": gzipped} {
			path := filepath.Join(t.TempDir(), "a.tar")
			mustWrite(t, path, compress(t, plainTar))
			s := openStore(t, StoreOptions{limits: tt.limits})
			var err error
			kept, allocated := holds(func() any { _, err = s.Resolve(t.Context(), archivePrefix+path, Options{}); return nil })
			if errors.Is(err, ErrLimit) != tt.refuse || err == nil {
				t.Errorf("%s, %s: %v; want ErrLimit %v", name, codec, err, tt.refuse)
			}
			if kept > 16<<20 || allocated > 32<<20 {
				t.Errorf("%s, %s: %d bytes allocated, %d kept", name, codec, allocated, kept)
			}
			nothingLeft(t, s)
		}
	}
}

// TestI11_HeadersAreNotKeptForNames: a short name in a header of a megabyte kept the megabyte.
func TestI11_HeadersAreNotKeptForNames(t *testing.T) {
	const n = 16
	comment := strings.Repeat("c", 900<<10)
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	mustWrite(t, path, gzipped(t, tarOf(t, n, func(i int) *tar.Header {
		return &tar.Header{Name: numbered(i, 200), Linkname: numbered(i, 200), Typeflag: tar.TypeLink, Format: tar.FormatPAX, PAXRecords: map[string]string{"X.comment": comment}}
	})))
	s := openStore(t, StoreOptions{})
	kept, _ := holds(func() any {
		a, err := archiveSource{path, s}.open(t.Context(), s.opts.limits)
		if err != nil || len(a.members) != n {
			t.Fatalf("%+v, %v", a, err)
		}
		t.Cleanup(func() { _ = a.f.Close() })
		return a
	})
	if kept > 4<<20 {
		t.Errorf("%d members keep %d bytes", n, kept)
	}
}

// TestI11_ManifestsOfManyObjectsAreRefused: three bytes of a manifest became a structure of 250.
func TestI11_ManifestsOfManyObjectsAreRefused(t *testing.T) {
	many := func(element string) string {
		return "[" + strings.Repeat(element+",", (4<<20)/(len(element)+1)-100) + element + "]"
	}
	tests := map[string]func(dir string, blobs map[string]string){
		"objects in the index": func(dir string, _ map[string]string) {
			mustWrite(t, filepath.Join(dir, "index.json"), []byte(`{"schemaVersion":2,"manifests":`+many("{}")+`}`))
		},
		"numbers in the index": func(dir string, _ map[string]string) {
			mustWrite(t, filepath.Join(dir, "index.json"), []byte(`{"schemaVersion":2,"manifests":`+many("1")+`}`))
		},
		"layers in the manifest": func(_ string, m map[string]string) {
			m["manifest"] = `{"schemaVersion":2,"config":{},"layers":` + many("{}") + `}`
		},
		"manifests of an index": func(_ string, m map[string]string) {
			m["manifest"] = `{"schemaVersion":2,"manifests":` + many("{}") + `}`
		},
		"history in configuration": func(_ string, m map[string]string) {
			m["config"] = `{"architecture":"amd64","os":"linux","history":` + many("{}") + `}`
		},
		"diff_ids": func(_ string, m map[string]string) {
			m["config"] = `{"architecture":"amd64","os":"linux","rootfs":{"diff_ids":` + many(`""`) + `}}`
		},
	}
	for name, spoil := range tests {
		dir := t.TempDir()
		texts := map[string]string{"config": `{"architecture":"amd64","os":"linux"}`}
		spoil(dir, texts)
		blob := func(text string) string {
			d := sha256Of([]byte(text))
			mustWrite(t, filepath.Join(dir, "blobs", "sha256", d.hex), []byte(text))
			return fmt.Sprintf(`{"digest":"%s","size":%d}`, d, len(text))
		}
		if texts["manifest"] == "" {
			texts["manifest"] = `{"schemaVersion":2,"config":` + blob(texts["config"]) + `,"layers":[]}`
		}
		manifest := blob(texts["manifest"])
		if _, err := os.Stat(filepath.Join(dir, "index.json")); err != nil {
			mustWrite(t, filepath.Join(dir, "index.json"), []byte(`{"schemaVersion":2,"manifests":[`+manifest+`]}`))
		}
		mustWrite(t, filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
		s := openStore(t, StoreOptions{})
		var err error
		_, allocated := holds(func() any { _, err = s.Resolve(t.Context(), ociPrefix+dir, Options{}); return nil })
		if !errors.Is(err, ErrLimit) || allocated > 64<<20 {
			t.Errorf("%s: %v with %d bytes allocated; want ErrLimit", name, err, allocated)
		}
	}
}

// TestI12_ArchivesAreUnpackedBesideTheCache and nowhere else; what decompresses to more than may be leaves nothing.
func TestI12_ArchivesAreUnpackedBesideTheCache(t *testing.T) {
	dir, homes := t.TempDir(), [2]string{t.TempDir(), t.TempDir()}
	t.Setenv("TMPDIR", "/nosuch")
	path := filepath.Join(dir, "bomb.tar.gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	zip := gzip.NewWriter(f)
	w := tar.NewWriter(zip)
	const size = 4 << 20
	if err := w.WriteHeader(&tar.Header{Name: "layer.tar", Size: size}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, io.LimitReader(zeros{}, size)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), zip.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := Open(homes[0], StoreOptions{limits: sizeLimits{totalBytes: size / 2}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), archivePrefix+path, Options{}); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "decompresses") {
		t.Errorf("%v; want ErrLimit", err)
	}
	nothingLeft(t, s)
	if s, err = Open(homes[1], StoreOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(t.Context(), archivePrefix+path, Options{}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "manifest.json") {
		t.Errorf("%v; want it unpacked, and the manifest missed", err)
	}
	nothingLeft(t, s)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
