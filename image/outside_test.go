package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestI14_LinkedLayoutBlobsAreRefused has a whole layout of which one part is
// a link to the very same bytes outside. The twin without a link is taken.
func TestI14_LinkedLayoutBlobsAreRefused(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	for _, part := range []string{"", "index.json", "blobs", "blobs/sha256", "manifest", "config", "layer"} {
		f := fixture{layers: [][]byte{layerOf(t, "n", part)}}
		dir := f.layout(t)
		names := map[string]string{"manifest": "manifest", "config": "config", "layer": "layer"}
		target := part
		if names[part] != "" {
			target = blobOf(t, dir, part)
		}
		if part != "" {
			outside := filepath.Join(t.TempDir(), "moved")
			if err := errors.Join(os.Rename(filepath.Join(dir, target), outside), os.Symlink(outside, filepath.Join(dir, target))); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Resolve(t.Context(), "oci:"+dir, Options{}); (err == nil) != (part == "") {
			t.Errorf("%q as a link: %v", part, err)
		}
	}
}

// blobOf is the path of a blob of a layout with one image of one layer.
func blobOf(t *testing.T, dir, kind string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		is := "layer"
		switch {
		case bytes.Contains(b, []byte(`"rootfs"`)):
			is = "config"
		case bytes.Contains(b, []byte(`"layers"`)):
			is = "manifest"
		}
		if is == kind {
			return filepath.Join("blobs", "sha256", filepath.Base(file))
		}
	}
	t.Fatalf("no %s in %s", kind, dir)
	return ""
}

// TestI5_DialPolicyJudgesResolvedAddresses has a registry by name: no literal
// address is judged before the dial.
func TestI5_DialPolicyJudgesResolvedAddresses(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "a", "1")}}, "app:v1")
	u, err := url.Parse(reg.URL)
	if err != nil {
		t.Fatal(err)
	}
	ref = strings.Replace(ref, "127.0.0.1", "localhost", 1)
	refuse := errors.New("not today")
	var mu sync.Mutex
	var seen []dialTarget
	s := openStore(t, StoreOptions{dialPolicy: func(d dialTarget) error {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, d)
		return refuse
	}})
	if _, err := s.Resolve(t.Context(), ref, Options{}); !errors.Is(err, refuse) {
		t.Errorf("got %v, want the policy's error", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) == 0 || seen[0].host != "localhost" || !seen[0].addr.Addr().IsLoopback() || seen[0].addr.Port() == 0 || !strings.HasSuffix(u.Host, seen[0].addr.String()[strings.LastIndexByte(seen[0].addr.String(), ':'):]) {
		t.Errorf("the policy saw %+v", seen)
	}
	if reg.gets.Load() != 0 {
		t.Error("the registry was reached")
	}
}

// TestI12_SwappedConfigurationsAreRefused: the member's name lies about its
// content.
func TestI12_SwappedConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "n", "one")}}
	good := archiveOf(t, f, false)
	name := sha256Of(f.defaults().configJSON(t)).hex
	lie := strings.Repeat("0", 63) + "1"
	bad := retar(t, good, func(s string) string { return strings.ReplaceAll(s, name, lie) })
	s := openStore(t, StoreOptions{})
	for want, content := range map[error][]byte{nil: retar(t, good, func(s string) string { return s }), ErrDigest: bad} {
		path := filepath.Join(t.TempDir(), "archive")
		mustWrite(t, path, content)
		if _, err := s.Resolve(t.Context(), "docker-archive:"+path, Options{}); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}

// retar changes the names of an archive's members, and its manifest.
func retar(t *testing.T, b []byte, change func(string) string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, r := tar.NewWriter(&out), tar.NewReader(bytes.NewReader(b))
	for {
		hdr, err := r.Next()
		if err != nil {
			break
		}
		var content bytes.Buffer
		_, _ = content.ReadFrom(r)
		if hdr.Name == "manifest.json" {
			content = *bytes.NewBufferString(change(content.String()))
		}
		hdr.Name, hdr.Size = change(hdr.Name), int64(content.Len())
		if err := w.WriteHeader(hdr); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content.Bytes())
	}
	_ = w.Close()
	return out.Bytes()
}

// TestI13_RemovedLockFilesStillExclude takes and releases one lock from many
// sides: each release removes the file that others have just opened.
func TestI13_RemovedLockFilesStillExclude(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	var inside, taken atomic.Int32
	var sides sync.WaitGroup
	for range 8 {
		sides.Go(func() {
			for range 1000 {
				l, err := tryLock(path)
				if err != nil {
					t.Error(err)
					return
				}
				if l == nil {
					continue
				}
				if inside.Add(1) > 1 {
					t.Error("two hold the lock")
				}
				taken.Add(1)
				for range 50 {
					runtime.Gosched() // the others get their turn meanwhile
				}
				inside.Add(-1)
				l.release()
			}
		})
	}
	sides.Wait()
	if taken.Load() == 0 {
		t.Error("nobody got the lock")
	}
}

// TestI14_FileThatWasSwappedIsRefused gives the writer what it knew of a file, and
// another file under its name.
func TestI14_FileThatWasSwappedIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mustWrite(t, filepath.Join(dir, "a"), []byte("mine"))
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	st, err := root.Lstat("a")
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, filepath.Join(dir, "b"), []byte("swap"))
	for _, swapped := range []bool{false, true} {
		if swapped {
			if err := os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")); err != nil {
				t.Fatal(err)
			}
		}
		var out bytes.Buffer
		f := &treeWriter{ctx: t.Context(), root: root, tw: tar.NewWriter(&out), inodes: map[[2]uint64]string{}, limits: sizeLimits{entries: 10, fileBytes: 1 << 20}}
		if err := f.entry("a", st); (err != nil) != swapped || strings.Contains(out.String(), "swap") {
			t.Errorf("swapped %v: %v", swapped, err)
		}
	}
}

func TestI11_LocalImagesAreBounded(t *testing.T) {
	t.Parallel()
	two := fixture{layers: [][]byte{layerOf(t, "a", "one"), layerOf(t, "b", "two")}}
	path := filepath.Join(t.TempDir(), "archive")
	mustWrite(t, path, archiveOf(t, two, false))
	for layers, want := range map[int]error{2: nil, 1: ErrConfig} {
		s := openStore(t, StoreOptions{limits: sizeLimits{layers: layers}})
		if _, err := s.Resolve(t.Context(), "docker-archive:"+path, Options{}); !errors.Is(err, want) {
			t.Errorf("2 layers where %d are allowed: %v", layers, err)
		}
	}
	dir := two.layout(t)
	index, err := os.ReadFile(filepath.Join(dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]error{maxManifestBytes: nil, maxManifestBytes + 1: ErrLimit} {
		mustWrite(t, filepath.Join(dir, "index.json"), append(index, bytes.Repeat([]byte(" "), size-len(index))...))
		if _, err := openStore(t, StoreOptions{}).Resolve(t.Context(), "oci:"+dir, Options{}); !errors.Is(err, want) {
			t.Errorf("an index of %d bytes: %v, want %v", size, err, want)
		}
	}
}

// A zstd frame says how much of what it holds must be kept in memory.
func TestI11_WindowsOfZstdAreBounded(t *testing.T) {
	t.Parallel()
	for log, ok := range map[byte]bool{20: true, 27: true, 28: false, 31: false} {
		empty := append(bytes.Clone(zstdMagic), 0, (log-10)<<3, 1, 0, 0) // no block but a last, empty one
		r, err := decompress(bytes.NewReader(empty))
		if err == nil {
			_, err = io.ReadAll(r)
			_ = r.Close()
		}
		if (err == nil) != ok {
			t.Errorf("a window of %d MiB: %v", 1<<(log-20), err)
		}
	}
}
