package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestDirectoryAsAnImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	mustWrite(t, outside, []byte("secret"))
	mustWrite(t, filepath.Join(dir, "bin", "sh"), []byte("#!"))
	if err := errors.Join(
		os.Chmod(filepath.Join(dir, "bin", "sh"), 0o755),
		os.Link(filepath.Join(dir, "bin", "sh"), filepath.Join(dir, "hard")),
		os.Symlink(outside, filepath.Join(dir, "leak")),
		os.Symlink("/", filepath.Join(dir, "rootlink")),
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	s := openStore(t, StoreOptions{})
	img := mustResolve(t, s, "dir:"+dir, Options{})
	fsck(t, img.DiskPath)
	names := debugfs(t, img.DiskPath, "ls /")
	for name, there := range map[string]bool{"bin": true, "hard": true, "leak": true, "fifo": true, "sock": false} {
		if strings.Contains(names, name) != there {
			t.Errorf("%s is there: %t, want %t", name, !there, there)
		}
	}
	if got := debugfs(t, img.DiskPath, "stat hard"); !strings.Contains(got, "Links: 2") || !strings.Contains(got, "Mode:  0755") {
		t.Errorf("the hard link: %s", got)
	}
	if got := debugfs(t, img.DiskPath, "stat leak"); !strings.Contains(got, "Type: symlink") {
		t.Errorf("a link that points outside was followed: %s", got)
	}
	if again := mustResolve(t, s, "dir:"+dir, Options{}); !again.Cached {
		t.Error("an unchanged directory was written again")
	}
	mustWrite(t, filepath.Join(dir, "bin", "sh"), []byte("!#"))
	changed := mustResolve(t, s, "dir:"+dir, Options{})
	if changed.Cached || changed.Digest == img.Digest || debugfs(t, changed.DiskPath, "cat bin/sh") != "!#" {
		t.Errorf("a changed directory: %+v", changed)
	}
	for _, bad := range []string{filepath.Join(dir, "missing"), filepath.Join(dir, "bin", "sh")} {
		if _, err := s.Resolve(t.Context(), "dir:"+bad, Options{}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// archiveOf is a "docker save" of one image; extra members come first.
func archiveOf(t *testing.T, f fixture, link bool) []byte {
	t.Helper()
	return namedArchive(t, f, link, "x:y")
}

func namedArchive(t *testing.T, f fixture, link bool, ref string) []byte {
	t.Helper()
	f = f.defaults()
	config := f.configJSON(t)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	member := func(hdr tar.Header, content []byte) {
		hdr.Mode, hdr.Size = 0o644, int64(len(content))
		if err := w.WriteHeader(&hdr); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(content)
	}
	configName := sha256Of(config).hex + ".json"
	var layers []string
	for i, l := range f.layers {
		name := string(rune('a'+i)) + "/layer.tar"
		if link && i > 0 {
			member(tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: "../a/layer.tar"}, nil)
		} else {
			member(tar.Header{Name: name, Typeflag: tar.TypeReg}, l)
		}
		layers = append(layers, name)
	}
	member(tar.Header{Name: configName, Typeflag: tar.TypeReg}, config)
	member(tar.Header{Name: "manifest.json", Typeflag: tar.TypeReg}, mustJSON(t, []any{map[string]any{"Config": configName, "RepoTags": []string{ref}, "Layers": layers}}))
	_ = w.Close()
	return b.Bytes()
}

func TestDockerArchive(t *testing.T) {
	t.Parallel()
	layer := layerOf(t, "n", "one")
	s := openStore(t, StoreOptions{})
	for name, content := range map[string][]byte{
		"plain":  archiveOf(t, fixture{layers: [][]byte{layer, layerOf(t, "m", "two")}}, false),
		"gzip":   gzipped(t, archiveOf(t, fixture{layers: [][]byte{layer, layerOf(t, "m", "two")}}, false)),
		"linked": archiveOf(t, fixture{layers: [][]byte{layer, layer}}, true),
	} {
		path := filepath.Join(t.TempDir(), name)
		mustWrite(t, path, content)
		img := mustResolve(t, s, "docker-archive:"+path, Options{})
		if got := debugfs(t, img.DiskPath, "cat n"); got != "one" {
			t.Errorf("%s holds %q", name, got)
		}
	}
}

func TestI12_BadArchivesAreRefused(t *testing.T) {
	t.Parallel()
	good := layerOf(t, "n", "one")
	cut := archiveOf(t, fixture{layers: [][]byte{good}}, false)
	gz := gzipped(t, cut)
	for name, tc := range map[string]struct {
		content []byte
		is      error
	}{
		"not a tar":      {bytes.Repeat([]byte("x"), 2000), ErrConfig},
		"empty":          {nil, ErrConfig},
		"another tar":    {good, ErrConfig},
		"cut":            {cut[:len(cut)/3], ErrConfig},
		"cut gzip":       {gz[:len(gz)/3], ErrConfig},
		"diffID lies":    {archiveOf(t, fixture{layers: [][]byte{good}, diffIDs: []string{sha256Of(nil).String()}}, false), ErrDigest},
		"other platform": {archiveOf(t, fixture{layers: [][]byte{good}, arch: "mips"}, false), ErrPlatform},
		"hostile layer":  {archiveOf(t, fixture{layers: [][]byte{layerOf(t, "../x", "")}}, false), ErrHostile},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "archive")
			mustWrite(t, path, tc.content)
			s := openStore(t, StoreOptions{})
			_, err := s.Resolve(t.Context(), "docker-archive:"+path, Options{})
			if !errors.Is(err, tc.is) {
				t.Errorf("got %v, want %v", err, tc.is)
			}
			if damaged := strings.Contains(fmt.Sprint(err), archiveFault{}.Error()); damaged != errors.Is(tc.is, ErrConfig) || strings.Contains(fmt.Sprint(err), ErrConfig.Error()) {
				t.Errorf("%v; an archive that is damaged is called so, and no other", err)
			}
			assertEmpty(t, s)
		})
	}
}
