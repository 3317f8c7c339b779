package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestImagesAreLoaded from a stream and from a file, and found by their names.
func TestImagesAreLoaded(t *testing.T) {
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	load := command(t, env, "image", "load")
	load.Stdin = bytes.NewReader(savedImage(t, "acme/app:1", "acme/app:latest"))
	if got := finish(t, load); got.code != 0 || got.out != "Loaded image: index.docker.io/acme/app:1\nLoaded image: index.docker.io/acme/app:latest\n" {
		t.Errorf("load: %+v", got)
	}
	if got := msb(t, env, "image", "inspect", "-f", "{{len .refs}} {{len .layers}}", "acme/app"); got.out != "2 1\n" {
		t.Errorf("inspect: %+v", got)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(file, savedImage(t, "acme/other:2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := msb(t, env, "image", "load", "-q", "-i", file); got.out != "Loaded image: index.docker.io/acme/other:2\n" || got.err != "" {
		t.Errorf("load -i: %+v", got)
	}
	if got := msb(t, env, "image", "load", "-i", file+".none"); got.code == 0 || !strings.Contains(got.err, "no such file") {
		t.Errorf("load of no file: %+v", got)
	}
	empty := command(t, env, "image", "load")
	empty.Stdin = strings.NewReader("")
	if got := finish(t, empty); got.code != exitImageRefused || !strings.Contains(got.err, "docker save") {
		t.Errorf("load of nothing: %+v", got)
	}
}

// TestImagesAreSaved to a file that is there whole or not at all.
func TestImagesAreSaved(t *testing.T) {
	env := []string{sandbox.EnvHome + "=" + filepath.Join(t.TempDir(), "home")}
	msb := func(args ...string) result { t.Helper(); return msb(t, env, args...) }
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from.tar"), filepath.Join(dir, "to.tar")
	if err := os.WriteFile(from, savedImage(t, "x:y"), 0o600); err != nil {
		t.Fatal(err)
	}
	ref := "docker-archive:" + from
	msb("image", "pull", "-q", ref)
	if got := msb("image", "save", "-o", to, ref); got.code != 0 {
		t.Fatalf("save: %+v", got)
	}
	if got := msb("image", "pull", "-q", "docker-archive:"+to); got.code != 0 || !strings.HasPrefix(got.out, "sha256:") {
		t.Errorf("what was saved: %+v", got)
	}
	if got := msb("image", "save", ref); got.code != 0 || !strings.Contains(got.out, "manifest.json") {
		t.Errorf("save to standard output: %d, %d bytes", got.code, len(got.out))
	}
	if err := errors.Join(os.Remove(from), os.Remove(to)); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{ref, "nosuch"} {
		if got := msb("image", "save", "-o", to, gone); got.code != exitImageUnknown {
			t.Errorf("save of %s: %+v", gone, got)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
