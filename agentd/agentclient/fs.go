package agentclient

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
)

// FS returns the guest's files below dir as an fs.FS; ctx ends its operations. The guest
// follows links, also out of dir.
func (f *Files) FS(ctx context.Context, dir string) fs.FS {
	return &guestFS{ctx: ctx, files: f, dir: dir}
}

type guestFS struct {
	ctx   context.Context // fs.FS has no other way to it
	files *Files
	dir   string
}

var (
	_ fs.FS        = (*guestFS)(nil)
	_ fs.StatFS    = (*guestFS)(nil)
	_ fs.ReadDirFS = (*guestFS)(nil)
)

func (g *guestFS) path(op, name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return path.Join(g.dir, name), nil
}

// named gives an error the name that the caller knows.
func named(op, name string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS.
func (g *guestFS) Open(name string) (fs.File, error) {
	st, err := g.Stat(name)
	if err != nil {
		return nil, err
	}
	full, err := g.path("open", name)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return &guestDir{info: st, list: func() ([]fs.DirEntry, error) { return g.ReadDir(name) }}, nil
	}
	r, err := g.files.Open(g.ctx, full, 0, 0)
	if err != nil {
		return nil, named("open", name, err)
	}
	return &guestFile{ReadCloser: r, info: st}, nil
}

// Stat implements fs.StatFS.
func (g *guestFS) Stat(name string) (fs.FileInfo, error) {
	full, err := g.path("stat", name)
	if err != nil {
		return nil, err
	}
	st, err := g.files.Stat(g.ctx, full, true)
	if err != nil {
		return nil, named("stat", name, err)
	}
	st.name = path.Base(name) // of the link, where it is one
	return st, nil
}

// ReadDir implements fs.ReadDirFS.
func (g *guestFS) ReadDir(name string) ([]fs.DirEntry, error) {
	full, err := g.path("readdir", name)
	if err != nil {
		return nil, err
	}
	list, err := g.files.ReadDir(g.ctx, full)
	if err != nil {
		return nil, named("readdir", name, err)
	}
	out := make([]fs.DirEntry, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out, nil
}

type guestFile struct {
	io.ReadCloser
	info fs.FileInfo
}

func (f *guestFile) Stat() (fs.FileInfo, error) { return f.info, nil }

type guestDir struct {
	info fs.FileInfo
	list func() ([]fs.DirEntry, error)
	rest []fs.DirEntry
	read bool
}

var _ fs.ReadDirFile = (*guestDir)(nil)

func (d *guestDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *guestDir) Close() error               { return nil }
func (d *guestDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.Name(), Err: errors.New("is a directory")}
}

// ReadDir implements fs.ReadDirFile.
func (d *guestDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.read {
		rest, err := d.list()
		if err != nil {
			return nil, err
		}
		d.rest, d.read = rest, true
	}
	if n <= 0 {
		n = len(d.rest)
	} else if len(d.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.rest))
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out, nil
}
