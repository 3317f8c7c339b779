package main

import (
	"bytes"
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
