package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// project is a tree with what is packed of a built one.
func project(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range files {
		at := filepath.Join(root, f.from)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(f.from), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestImageHoldsWhatNodesNeed: each file with its mode, the entry point among them, and the same archive each time.
func TestImageHoldsWhatNodesNeed(t *testing.T) {
	t.Parallel()
	root, dir := project(t), t.TempDir()
	var archives []string
	for _, name := range []string{"a.tar", "b.tar"} {
		at := filepath.Join(dir, name)
		if err := pack(root, "msb-node:1", at); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, string(b))
	}
	if archives[0] != archives[1] {
		t.Error("two archives of the same differ")
	}
	image, err := tarball.ImageFromPath(filepath.Join(dir, "a.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(append(config.Config.Entrypoint, config.Config.Cmd...), " "); got != "/msb-node run" || config.OS != "linux" {
		t.Errorf("it runs %q on %s", got, config.OS)
	}
	content := mutate.Extract(image)
	defer func() { _ = content.Close() }()
	got := map[string]int64{}
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h.Mode
	}
	for _, f := range files {
		if got[f.name] != f.mode {
			t.Errorf("%s has the mode %o, want %o", f.name, got[f.name], f.mode)
		}
	}
}

// TestNothingIsPackedInPart: a file that is missing is named, and no archive is left.
func TestNothingIsPackedInPart(t *testing.T) {
	t.Parallel()
	root, out := project(t), filepath.Join(t.TempDir(), "x.tar")
	if err := os.Remove(filepath.Join(root, "bin/msb-node")); err != nil {
		t.Fatal(err)
	}
	if err := pack(root, "msb-node:1", out); err == nil || !strings.Contains(err.Error(), "make node-image") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
