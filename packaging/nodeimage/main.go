package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// files are the image's, and where they are in the project.
var files = []struct {
	name, from string
	mode       int64
}{
	{"msb-node", "bin/msb-node", 0o755},
	{"opt/msb/bin/containerd-shim-msb-v1", "bin/containerd-shim-msb-v1", 0o755},
	{"opt/msb/bin/msb", "bin/msb", 0o755},
	{"opt/msb/lib/msb/LICENSE.libkrun", "lib/msb/LICENSE.libkrun", 0o644},
	{"opt/msb/lib/msb/NOTICE", "lib/msb/NOTICE", 0o644},
	{"opt/msb/lib/msb/libkrun.so.1", "lib/msb/libkrun.so.1", 0o755},
	{"opt/msb/lib/msb/libkrunfw.so.5", "lib/msb/libkrunfw.so.5", 0o755},
}

func main() {
	root := flag.String("root", ".", "the project, built")
	tag := flag.String("tag", "msb-node:dev", "the image's `name`")
	out := flag.String("o", "bin/msb-node.tar", "the archive to write")
	flag.Parse()
	if err := pack(*root, *tag, *out); err != nil {
		fmt.Fprintln(os.Stderr, "nodeimage:", err)
		os.Exit(1)
	}
}

// pack writes an archive that is there whole or not at all.
func pack(root, tag, out string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("-tag: %w", err)
	}
	image, err := build(root)
	if err != nil {
		return err
	}
	partial := out + ".partial"
	if err := tarball.WriteToFile(partial, ref, image); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, out)
}

func build(root string) (v1.Image, error) {
	content, err := layer(root)
	if err != nil {
		return nil, err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/msb-node"}, Cmd: []string{"run"}}
	return mutate.ConfigFile(image, config)
}

// layer is a tar archive of all files and their directories, without times.
func layer(root string) ([]byte, error) {
	var b bytes.Buffer
	w, made := tar.NewWriter(&b), map[string]bool{}
	for _, f := range files {
		if err := directories(w, made, path.Dir(f.name)); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(filepath.Join(root, f.from))
		if err != nil {
			return nil, fmt.Errorf("%w; `make node-image` builds it", err)
		}
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(content)), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

// directories adds a directory and those above it, once.
func directories(w *tar.Writer, made map[string]bool, dir string) error {
	if dir == "." || made[dir] {
		return nil
	}
	made[dir] = true
	if err := directories(w, made, path.Dir(dir)); err != nil {
		return err
	}
	return w.WriteHeader(&tar.Header{Name: dir + "/", Mode: 0o755, Typeflag: tar.TypeDir})
}
