package image

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestSavedImagesAreLoaded: what Save writes is an image to the byte, and Load brings it into another cache.
func TestSavedImagesAreLoaded(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "n", "one"), layerOf(t, "m", "two")}, config: map[string]any{"Cmd": []string{"sh"}}}
	dir := f.layout(t)
	archive := filepath.Join(t.TempDir(), "a.tar")
	mustWrite(t, archive, archiveOf(t, f, false))
	s := openStore(t, StoreOptions{})
	for _, ref := range []string{ociPrefix + dir, archivePrefix + archive} {
		img := mustResolve(t, s, ref, Options{})
		var out bytes.Buffer
		if err := s.Save(t.Context(), &out, []string{ref, img.Digest[:20]}, SaveOptions{}); err != nil {
			t.Errorf("%s: %v", ref, err)
			continue
		}
		saved := filepath.Join(t.TempDir(), "saved.tar")
		mustWrite(t, saved, out.Bytes())
		again := openStore(t, StoreOptions{})
		got := mustResolve(t, again, archivePrefix+saved, Options{})
		d, err := again.Inspect(archivePrefix + saved)
		if debugfs(t, got.DiskPath, "cat n") != "one" || err != nil || !bytes.Equal(d.ConfigFile, f.defaults().configJSON(t)) || len(d.Layers) != 2 {
			t.Errorf("%s: %+v, %v", ref, d, err)
		}
	}
}

// TestSaveKeepsTheNames of what a registry has, by the digest in the cache: its tag may have gone on.
func TestSaveKeepsTheNames(t *testing.T) {
	t.Parallel()
	reg := newTestRegistry(t)
	ref := reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "one")}}, "app:v1")
	s := openStore(t, StoreOptions{})
	mustResolve(t, s, ref, Options{})
	reg.push(t, fixture{layers: [][]byte{layerOf(t, "n", "two")}}, "app:v1")
	var out bytes.Buffer
	if err := s.Save(t.Context(), &out, []string{ref}, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	other := openStore(t, StoreOptions{})
	if _, err := other.Load(t.Context(), &out, LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if img := mustResolve(t, other, ref, Options{Pull: PullNever}); debugfs(t, img.DiskPath, "cat n") != "one" {
		t.Error("it holds what the tag means now")
	}
}

// TestI12_IncompleteImagesAreNotSaved: an image whose layers are there no longer, are others, or never were.
func TestI12_IncompleteImagesAreNotSaved(t *testing.T) {
	t.Parallel()
	f := fixture{layers: [][]byte{layerOf(t, "n", "one")}}
	s := openStore(t, StoreOptions{})
	gone, changed, bad := f.layout(t), f.layout(t), filepath.Join(t.TempDir(), "bad")
	if err := os.CopyFS(bad, os.DirFS(f.layout(t))); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, ref := range []string{ociPrefix + gone, ociPrefix + changed, ociPrefix + bad, dirPrefix + dir} {
		mustResolve(t, s, ref, Options{})
	}
	other := fixture{layers: [][]byte{layerOf(t, "n", "two")}}
	writeIndex(t, changed, other.write(t, changed))
	mustWrite(t, blobPath(bad, sha256Of(gzipped(t, f.layers[0])).String()), bytes.Repeat([]byte("x"), len(gzipped(t, f.layers[0]))))
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]error{
		"nosuch": ErrNotCached, ociPrefix + gone: errNoLayers, ociPrefix + changed: errNoLayers, dirPrefix + dir: errNoLayers, ociPrefix + bad: ErrDigest,
	} {
		if err := s.Save(t.Context(), &bytes.Buffer{}, []string{ref}, SaveOptions{}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", ref, err, want)
		}
	}
}

// TestImagesOfArchivesAskNoRegistry: what came in docker's format has nothing that a registry could have, and fails before
// anybody is asked.
func TestImagesOfArchivesAskNoRegistry(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer registry.Close()
	ref := strings.TrimPrefix(registry.URL, "http://") + "/app:v1"
	s := openStore(t, StoreOptions{})
	f := fixture{layers: [][]byte{layerOf(t, "n", "one")}}
	if _, err := s.Load(t.Context(), bytes.NewReader(namedArchive(t, f, false, ref)), LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), &bytes.Buffer{}, []string{ref}, SaveOptions{}); !errors.Is(err, errNoLayers) || !strings.Contains(err.Error(), "msb snapshot export") {
		t.Errorf("got %v", err)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the registry was asked %d times", n)
	}
	if _, err := s.Resolve(t.Context(), ref, Options{Pull: PullAlways}); err == nil || asked.Load() == 0 { // the twin
		t.Errorf("a pull asks it %d times: %v", asked.Load(), err)
	}
}
