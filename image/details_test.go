package image

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInspectHasWhatTheMakerWrote: layers, configuration and history of an image by each of its names; a directory has
// none of them.
func TestInspectHasWhatTheMakerWrote(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	f := fixture{layers: [][]byte{layerOf(t, "n", "one"), layerOf(t, "m", "two")}, config: map[string]any{"Env": []string{"A=b"}}}
	f.history = []any{map[string]any{"created": "2026-01-02T03:04:05Z", "created_by": "FROM x"}, map[string]any{"created_by": "ENV A=b", "comment": "c", "empty_layer": true}}
	ref := ociPrefix + f.layout(t)
	img := mustResolve(t, s, ref, Options{})
	archive := filepath.Join(t.TempDir(), "a.tar")
	mustWrite(t, archive, archiveOf(t, f, false))
	mustResolve(t, s, archivePrefix+archive, Options{})
	for _, name := range []string{ref, img.Digest, img.Digest[:20], strings.TrimPrefix(img.Digest, "sha256:")[:12], archivePrefix + archive} {
		d, err := s.Inspect(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Refs) != 1 || len(d.Layers) != 2 || d.Layers[0].DiffID != sha256Of(f.layers[0]).String() || d.Layers[1].SizeBytes <= 0 || (d.Layers[0].Digest == "") != strings.HasPrefix(name, archivePrefix) ||
			!bytes.Equal(d.ConfigFile, f.defaults().configJSON(t)) || d.Config.Env[0] != "A=b" {
			t.Errorf("%s: %+v", name, d)
		}
		steps, err := d.History()
		if err != nil || len(steps) != 2 || !steps[0].Created.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || steps[1].CreatedBy != "ENV A=b" || !steps[1].EmptyLayer || steps[1].Comment != "c" {
			t.Errorf("%s: %+v, %v", name, steps, err)
		}
	}
	for _, name := range []string{"nosuch", img.Digest[:9], "sha256:", "sha256:zzzz", ""} {
		if _, err := s.Inspect(name); !errors.Is(err, ErrNotCached) {
			t.Errorf("%q: %v", name, err)
		}
	}
	dir := t.TempDir()
	mustResolve(t, s, dirPrefix+dir, Options{})
	d, err := s.Inspect(dirPrefix + dir)
	if err != nil || d.Layers != nil || d.ConfigFile != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if steps, err := d.History(); err != nil || steps != nil {
		t.Errorf("%+v, %v", steps, err)
	}
	if err := s.Remove(ref); err != nil {
		t.Errorf("a disk with its configuration is not removed: %v", err)
	}
}

// TestI12_DamagedDetailsAreNamed, and the disk is of use all the same.
func TestI12_DamagedDetailsAreNamed(t *testing.T) {
	t.Parallel()
	s := openStore(t, StoreOptions{})
	ref := ociPrefix + fixture{layers: [][]byte{layerOf(t, "n", "one")}}.layout(t)
	img := mustResolve(t, s, ref, Options{})
	path := filepath.Join(filepath.Dir(img.DiskPath), configName)
	for what, damage := range map[string]func() error{
		"no JSON": func() error { return os.WriteFile(path, []byte("{"), 0o600) },
		"large":   func() error { return os.Truncate(path, maxConfigBytes+1) },
		"a link":  func() error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if d, err := s.Inspect(ref); err == nil || !strings.Contains(err.Error(), "configuration") {
			t.Errorf("%s: %+v, %v", what, d, err)
		}
		_ = os.Remove(path)
		mustWrite(t, path, nil)
	}
	if again := mustResolve(t, s, ref, Options{}); !again.Cached {
		t.Error("the disk was made again")
	}
}
