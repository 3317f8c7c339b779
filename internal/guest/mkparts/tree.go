package main

import (
	"archive/tar"
	"io"
	"os"
	"time"
)

// tree is a list of entries, parents first, all of root and of one time.
type tree struct{ entries []entry }

type entry struct {
	header tar.Header
	data   []byte
}

// epoch is the time of every file: the same inputs give the same bytes.
var epoch = time.Unix(0, 0)

func (t *tree) add(h tar.Header, data []byte) {
	h.ModTime, h.Format, h.Size = epoch, tar.FormatPAX, int64(len(data))
	t.entries = append(t.entries, entry{h, data})
}

func (t *tree) dir(name string, mode int64) {
	t.add(tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (t *tree) dirs(names ...string) {
	for _, n := range names {
		t.dir(n, 0o755)
	}
}

func (t *tree) file(name string, mode int64, data string) {
	t.add(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, []byte(data))
}

func (t *tree) program(name, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	t.file(name, 0o755, string(b))
	return nil
}

func (t *tree) link(name, to string) {
	t.add(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, nil)
}

func (t *tree) device(name string, major, minor int64) {
	t.add(tar.Header{Typeflag: tar.TypeChar, Name: name, Mode: 0o600, Devmajor: major, Devminor: minor}, nil)
}

func (t *tree) writeTar(w io.Writer) error {
	tw := tar.NewWriter(w)
	for _, e := range t.entries {
		if err := tw.WriteHeader(&e.header); err != nil {
			return err
		}
		if _, err := tw.Write(e.data); err != nil {
			return err
		}
	}
	return tw.Close()
}
