package image

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

// tarOfDir is a directory as a tar, as `tar c .` writes it.
func tarOfDir(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestLoadKeepsTheNames of docker's archives and of layouts, plain and compressed: they can be run without a registry.
func TestLoadKeepsTheNames(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "n", "one")}}
	other := fixture{layers: [][]byte{layerOf(t, "n", "two")}}
	layout := t.TempDir()
	named := func(f fixture, annotations map[string]any, platform map[string]any) map[string]any {
		d := f.write(t, layout)
		d["annotations"] = annotations
		if platform != nil {
			d["platform"] = platform
		}
		return d
	}
	host := map[string]any{"os": "linux", "architecture": DefaultPlatform().Architecture}
	writeIndex(t, layout,
		named(f, map[string]any{containerdNameAnnotation: "ghcr.io/acme/app:1", refNameAnnotation: "1"}, host),
		named(other, map[string]any{refNameAnnotation: "acme/other:2"}, nil),
		named(other, nil, map[string]any{"os": "unknown", "architecture": "unknown"}))
	for what, c := range map[string]struct {
		archive []byte
		want    map[string]string // name to content of the file n
	}{
		"docker":      {archiveOf(t, f, false), map[string]string{"x:y": "one"}},
		"docker gzip": {gzipped(t, archiveOf(t, f, false)), map[string]string{"x:y": "one"}},
		"oci":         {tarOfDir(t, layout), map[string]string{"ghcr.io/acme/app:1": "one", "acme/other:2": "two"}},
		"oci zstd":    {zstded(t, tarOfDir(t, layout)), map[string]string{"ghcr.io/acme/app:1": "one"}},
	} {
		s := openStore(t, StoreOptions{})
		all, err := s.Load(t.Context(), bytes.NewReader(c.archive), LoadOptions{})
		if err != nil || len(all) < len(c.want) {
			t.Errorf("%s: %+v, %v", what, all, err)
			continue
		}
		for ref, content := range c.want {
			img := mustResolve(t, s, ref, Options{Pull: PullNever})
			if got := debugfs(t, img.DiskPath, "cat n"); got != content || !img.Cached {
				t.Errorf("%s: %s holds %q", what, ref, got)
			}
			if d, err := s.Inspect(ref); err != nil || len(d.Layers) != 1 || d.ConfigFile == nil {
				t.Errorf("%s: %+v, %v", what, d, err)
			}
		}
		// Who names an image in a policy gets what a registry gives to anybody, and nothing that was loaded.
		for ref := range c.want {
			if img, err := s.Resolve(t.Context(), ref, Options{Pull: PullNever, Anonymous: true}); !errors.Is(err, ErrNotCached) {
				t.Errorf("%s: %+v, %v", what, img, err)
			}
		}
	}
}

// TestI12_HostileArchivesAreNotLoaded, and leave nothing. The twins are in TestLoadKeepsTheNames.
func TestI12_HostileArchivesAreNotLoaded(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "n", "one")}}
	layout := func(change func(dir string)) []byte {
		dir := t.TempDir()
		d := f.write(t, dir)
		d["annotations"] = map[string]any{refNameAnnotation: "x:y"}
		writeIndex(t, dir, d)
		change(dir)
		return tarOfDir(t, dir)
	}
	tags := func(tag string) []byte { // of the same length
		return bytes.Replace(archiveOf(t, f, false), []byte(`"x:y"`), []byte(fmt.Sprintf("%-5s", `"`+tag+`"`)), 1)
	}
	blob := func(dir string, b []byte) string { return blobPath(dir, sha256Of(b).String()) }
	many := make([]map[string]any, 0, maxLoad+1)
	for i := range maxLoad + 1 {
		d := f.write(t, t.TempDir())
		d["annotations"] = map[string]any{refNameAnnotation: fmt.Sprint("x:", i)}
		many = append(many, d)
	}
	for name, c := range map[string]struct {
		archive []byte
		is      error
		says    string
	}{
		"empty":             {nil, ErrConfig, "neither manifest.json nor index.json"},
		"no tar":            {bytes.Repeat([]byte("x"), 4096), ErrConfig, "no archive"},
		"cut off":           {archiveOf(t, f, false)[:1500], ErrConfig, "no archive"},
		"without a name":    {tags(""), ErrReference, "has no name"},
		"a name of no form": {tags("X"), ErrReference, "would not take"},
		"a path for a name": {tags("../"), ErrReference, "is a path"},
		"a flag for a name": {tags("-x"), ErrReference, "flag"},
		"a terminal's name": {tags(`\t`), ErrReference, "control characters"},
		"another's content": {layout(func(dir string) { mustWrite(t, blob(dir, gzipped(t, f.layers[0])), gzipped(t, layerOf(t, "n", "two"))) }), ErrDigest, ""},
		"another's config":  {layout(func(dir string) { mustWrite(t, blob(dir, f.defaults().configJSON(t)), []byte("{}")) }), ErrDigest, ""},
		"without its layer": {layout(func(dir string) { _ = os.Remove(blob(dir, gzipped(t, f.layers[0]))) }), ErrConfig, "no member"},
		"too many images":   {layout(func(dir string) { _ = fixture{layers: f.layers}.write(t, dir); writeIndex(t, dir, many...) }), ErrLimit, "at most 32"},
		"no images":         {layout(func(dir string) { writeIndex(t, dir) }), ErrConfig, "lists no image"},
		"an index of itself": {layout(func(dir string) {
			mustWrite(t, filepath.Join(dir, "index.json"), []byte(`{"schemaVersion":2,"manifests":[{"digest":"sha256:0","size":1}]}`))
		}), nil, "index.json"},
		"a name outside": {savedWith(t, f, tar.Header{Name: "../../etc/x", Typeflag: tar.TypeReg}), nil, ""},
		"a link outside": {savedWith(t, f, tar.Header{Name: "manifest.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), ErrConfig, "no member"},
	} {
		s := openStore(t, StoreOptions{})
		all, err := s.Load(t.Context(), bytes.NewReader(c.archive), LoadOptions{})
		if name == "a name outside" { // which is a key of a map, and no path
			if err != nil || len(all) != 1 {
				t.Errorf("%s: %+v, %v", name, all, err)
			}
			continue
		}
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v; want %v that says %q", name, all, err, c.is, c.says)
		}
		noDisks(t, s, name)
	}
}

// noDisks fails if something of an image stays in the cache; locks may.
func noDisks(t *testing.T, s *Store, what string) {
	t.Helper()
	for _, sub := range []string{disksDir, refsDir, tmpDir} {
		if left, err := os.ReadDir(filepath.Join(s.dir, sub)); err != nil || len(left) > 0 {
			t.Errorf("%s left %v in %s, %v", what, left, sub, err)
		}
	}
}

// savedWith is archiveOf with one more member, which is the last of its name.
func savedWith(t *testing.T, f fixture, hdr tar.Header) []byte {
	t.Helper()
	r, b := tar.NewReader(bytes.NewReader(archiveOf(t, f, false))), bytes.Buffer{}
	w := tar.NewWriter(&b)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err = errors.Join(err, w.WriteHeader(h)); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content)
	}
	if err := errors.Join(w.WriteHeader(&hdr), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestI11_LoadedArchivesAreBounded by what they decompress to, from a stream that says no length.
func TestI11_LoadedArchivesAreBounded(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "n", strings.Repeat("x", 1<<20))}}
	archive := gzipped(t, archiveOf(t, f, false))
	for limit, fits := range map[int64]bool{1 << 19: false, 1 << 22: true} {
		s := openStore(t, StoreOptions{limits: sizeLimits{totalBytes: limit}})
		_, err := s.Load(t.Context(), bytes.NewReader(archive), LoadOptions{})
		if (err == nil) != fits || err != nil && !errors.Is(err, ErrLimit) {
			t.Errorf("a limit of %d: %v", limit, err)
		}
		if !fits {
			noDisks(t, s, "over a limit")
		}
	}
}
