package main

import (
	"archive/zip"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

//go:embed manifest.json
var manifest string

func main() {
	root := flag.String("root", ".", "the project, built")
	binary := flag.String("msb", "", "msb's `program`; ROOT/bin/msb by default")
	version := flag.String("version", "", "of the bundle, as `1.2.3`")
	out := flag.String("o", "", "the `file` to write")
	flag.Parse()
	if *binary == "" {
		*binary = filepath.Join(*root, "bin/msb")
	}
	if err := pack(*root, *binary, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "mcpb:", err)
		os.Exit(1)
	}
}

// pack writes the bundle to a file that is there whole or not at all.
func pack(root, binary, version, out string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(out), ".mcpb")
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), out)
		}
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	z := zip.NewWriter(f)
	text := strings.Replace(manifest, `"version": "0.0.0"`, fmt.Sprintf(`"version": %q`, version), 1)
	err = add(z, "manifest.json", 0o644, strings.NewReader(text))
	lib := filepath.Join(root, "lib/msb")
	for _, file := range []struct {
		name, from string
		mode       os.FileMode
	}{
		{"LICENSE", filepath.Join(root, "LICENSE"), 0o644}, {"NOTICE", filepath.Join(root, "packaging/npm/NOTICE"), 0o644},
		{"server/bin/msb", binary, 0o755},
		{"server/lib/msb/libkrun.so.1", filepath.Join(lib, "libkrun.so.1"), 0o755}, {"server/lib/msb/libkrunfw.so.5", filepath.Join(lib, "libkrunfw.so.5"), 0o755},
		{"server/lib/msb/NOTICE", filepath.Join(lib, "NOTICE"), 0o644}, {"server/lib/msb/LICENSE.libkrun", filepath.Join(lib, "LICENSE.libkrun"), 0o644},
	} {
		var from *os.File
		if err == nil {
			from, err = os.Open(file.from)
		}
		if err == nil {
			err = errors.Join(add(z, file.name, file.mode, from), from.Close())
		}
	}
	return errors.Join(err, z.Close(), f.Chmod(0o644))
}

// add writes one file, without a time: what is the same packs the same.
func add(z *zip.Writer, name string, mode os.FileMode, from io.Reader) error {
	h := &zip.FileHeader{Name: name, Method: zip.Deflate}
	h.SetMode(mode)
	w, err := z.CreateHeader(h)
	if err == nil {
		_, err = io.Copy(w, from)
	}
	return err
}
