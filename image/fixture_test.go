package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if helper := os.Getenv("MSB_IMAGE_TEST_HELPER"); helper != "" {
		os.Exit(runHelper(helper))
	}
	goleak.VerifyTestMain(m)
}

// fixture is an image under construction; its fields may lie.
type fixture struct {
	arch      string
	layers    [][]byte // tar streams
	compress  func(testing.TB, []byte) []byte
	config    map[string]any // the "config" object
	diffIDs   []string       // overrides
	history   []any
	rootType  string // "layers"
	mutate    func(manifest map[string]any)
	afterBlob func(dir string)
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	return w.EncodeAll(b, nil)
}

func plain(_ testing.TB, b []byte) []byte { return b }

// layerOf makes a tar of files by name; a name that ends in "/" is a directory.
func layerOf(t testing.TB, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i+1 < len(files); i += 2 {
		hdr := &tar.Header{Name: files[i], Mode: 0o755, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		if strings.HasSuffix(files[i], "/") {
			hdr.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, files[i+1])
	}
	_ = w.Close()
	return b.Bytes()
}

func (f fixture) defaults() fixture {
	if f.arch == "" {
		f.arch = DefaultPlatform().Architecture
	}
	if f.compress == nil {
		f.compress = gzipped
	}
	return f
}

func (f fixture) configJSON(t testing.TB) []byte {
	t.Helper()
	ids := []string{}
	for i, l := range f.layers {
		id := sha256Of(l).String()
		if f.diffIDs != nil {
			id = f.diffIDs[i]
		}
		ids = append(ids, id)
	}
	return mustJSON(t, map[string]any{
		"os": "linux", "architecture": f.arch, "config": f.config,
		"rootfs": map[string]any{"type": cmp.Or(f.rootType, "layers"), "diff_ids": ids}, "history": f.history,
	})
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// write adds the image's blobs to an OCI layout and returns its descriptor.
func (f fixture) write(t testing.TB, dir string) map[string]any {
	t.Helper()
	f = f.defaults()
	layers := []any{}
	for _, l := range f.layers {
		blob := f.compress(t, l)
		layers = append(layers, putBlob(t, dir, "application/vnd.oci.image.layer.v1.tar+gzip", blob))
	}
	manifest := map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": putBlob(t, dir, "application/vnd.oci.image.config.v1+json", f.configJSON(t)),
		"layers": layers,
	}
	if f.mutate != nil {
		f.mutate(manifest)
	}
	d := putBlob(t, dir, "application/vnd.oci.image.manifest.v1+json", mustJSON(t, manifest))
	if f.afterBlob != nil {
		f.afterBlob(dir)
	}
	return d
}

// layout writes an OCI layout of one image and returns its directory.
func (f fixture) layout(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	writeIndex(t, dir, f.write(t, dir))
	return dir
}

func writeIndex(t testing.TB, dir string, manifests ...map[string]any) {
	t.Helper()
	index := mustJSON(t, map[string]any{"schemaVersion": 2, "manifests": manifests})
	mustWrite(t, filepath.Join(dir, "index.json"), index)
	mustWrite(t, filepath.Join(dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
}

func putBlob(t testing.TB, dir, media string, b []byte) map[string]any {
	t.Helper()
	d := sha256Of(b)
	mustWrite(t, blobPath(dir, d.String()), b)
	return map[string]any{"mediaType": media, "digest": d.String(), "size": len(b)}
}

func blobPath(dir, digest string) string {
	return filepath.Join(dir, "blobs", strings.Replace(digest, ":", string(filepath.Separator), 1))
}

func mustWrite(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func openStore(t testing.TB, opts StoreOptions) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustResolve(t testing.TB, s *Store, ref string, opts Options) *Image {
	t.Helper()
	img, err := s.Resolve(t.Context(), ref, opts)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// assertEmpty fails unless the store holds no disk, no staging, no reference.
func assertEmpty(t testing.TB, s *Store) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != s.dir && filepath.Dir(path) != s.dir {
			t.Errorf("left behind: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func e2fsTool(t testing.TB, name string) string {
	t.Helper()
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/opt/homebrew/opt/e2fsprogs/sbin"} {
		if p := filepath.Join(dir, name); exec.Command(p, "-V").Run() == nil {
			return p
		}
	}
	t.Fatalf("%s is missing: install e2fsprogs", name)
	return ""
}

// debugfs asks a disk; it is the reader of file systems that these tests trust.
func debugfs(t testing.TB, disk, command string) string {
	t.Helper()
	out, err := exec.Command(e2fsTool(t, "debugfs"), "-R", command, disk).Output()
	if err != nil {
		t.Fatalf("debugfs %q: %v", command, err)
	}
	return string(out)
}

func fsck(t testing.TB, disk string) {
	t.Helper()
	if out, err := exec.Command(e2fsTool(t, "e2fsck"), "-fn", disk).CombinedOutput(); err != nil {
		t.Fatalf("e2fsck: %v\n%s", err, out)
	}
}
