package tartree

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

const (
	// maxLinks is how many files with several names a Pack remembers, so that
	// the second name becomes a hard link. Beyond it each name is a copy.
	maxLinks = 1 << 16

	// maxSkipped bounds the names in a Report, maxSkippedName the bytes of each: an archive may name a megabyte.
	maxSkipped     = 64
	maxSkippedName = 4 << 10
)

// A small file is read whole before its header is written: the files of /proc and /sys do not have the sizes that they
// show. smallFile is the shown size up to which it is done, maxWhole what is read then at most.
const (
	smallFile = 64 << 10
	maxWhole  = 16 << 20
)

var (
	// ErrChanged means that the archive is complete, but files changed their size while they were read: they are filled
	// up with zeros, or cut off.
	ErrChanged = errors.New("changed while it was copied, so that the copy may mix old and new content; copy it again when nothing writes to it")

	// errReplaced means that another file or directory has taken the place of one.
	errReplaced = errors.New("it was replaced meanwhile")

	// errSpecial means that the one file to pack is none that an archive carries the content of.
	errSpecial = errors.New("it is a device, FIFO or socket, which can't be copied; let a command read it into a file, and copy that")
)

// Report says what an archive holds of what was asked for.
type Report struct {
	Entries, Bytes int64
	// Skipped names devices, FIFOs and sockets that were left out, at most 64.
	// Further ones are counted in SkippedMore.
	Skipped     []string
	SkippedMore int64
}

func (r *Report) skip(name string) {
	name = name[:min(len(name), maxSkippedName)]
	if len(r.Skipped) < maxSkipped {
		r.Skipped = append(r.Skipped, name)
		return
	}
	r.SkippedMore++
}

// PackOptions says how Pack names and chooses entries.
type PackOptions struct {
	// As is the first entry's name; those below begin with it. Empty means the
	// base of the packed path.
	As string
	// Leave says which directories are kept without their content: those of
	// another kind of file system, say. nil keeps everything.
	Leave func(name string) bool
}

type linkID struct{ dev, ino uint64 }

type packer struct {
	ctx    context.Context
	root   *os.Root
	out    *tar.Writer
	opts   PackOptions
	top    string // what is packed, as messages name it
	whole  bool   // it is a directory, and root is that directory
	links  map[linkID]string
	held   bytes.Buffer
	report Report

	content copier
	// changed is the first file that ErrChanged is about; more counts the others.
	changed string
	more    int
}

// copier copies contents. A guest whose processor is emulated needs few system calls more than little memory.
type copier struct{ buf []byte }

const (
	copyBytes  = 1 << 20
	shortBytes = 32 << 10 // of files that are no longer
)

// move copies about size bytes.
func (c *copier) move(w io.Writer, r io.Reader, size int64) (int64, error) {
	want := shortBytes
	if size > shortBytes {
		want = copyBytes
	}
	return io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, c.room(want))
}

func (c *copier) room(n int) []byte {
	if len(c.buf) < n {
		c.buf = make([]byte, n)
	}
	return c.buf
}

// Pack writes the file or directory name of root to w as a PAX archive. A file
// that shrinks meanwhile is filled up with zeros, one that grows is cut off; the
// archive is complete then, and the error is ErrChanged.
func Pack(ctx context.Context, w io.Writer, root *os.Root, name string, o PackOptions) (Report, error) {
	if o.As == "" {
		o.As = path.Base(name)
	}
	p := &packer{ctx: ctx, root: root, out: tar.NewWriter(w), opts: o, top: path.Clean(name), links: map[linkID]string{}}
	err := p.all()
	if err == nil {
		err = p.out.Close()
	}
	if err == nil && p.changed != "" {
		err = &fs.PathError{Op: "pack", Path: p.changed, Err: ErrChanged}
		if p.more > 0 {
			err = fmt.Errorf("%w (and %d other files)", err, p.more)
		}
	}
	return p.report, err
}

// all writes everything. A directory is a root of its own: a link that takes the place of a directory in it meanwhile would
// lead to what lies beside it otherwise, for which nobody asked.
func (p *packer) all() error {
	st, err := p.root.Lstat(p.top)
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return p.visit(p.top, nil, nil)
	}
	inner, err := p.root.OpenRoot(p.top)
	if err != nil {
		return err
	}
	defer func() { _ = inner.Close() }() // it was read only
	now, err := inner.Stat(".")
	if err != nil {
		return err
	}
	if !os.SameFile(st, now) {
		return &fs.PathError{Op: "pack", Path: p.top, Err: errReplaced}
	}
	p.root, p.whole = inner, true
	return fs.WalkDir(inner.FS(), ".", p.visit)
}

// shown is how messages name a path of root's.
func (p *packer) shown(name string) string {
	if p.whole {
		return path.Join(p.top, name)
	}
	return name
}

func (p *packer) visit(name string, _ fs.DirEntry, err error) error {
	top := !p.whole || name == "."
	if err == nil {
		err = p.ctx.Err()
	}
	if errors.Is(err, fs.ErrNotExist) && !top {
		return nil // removed since its directory was read
	}
	if err != nil {
		return err
	}
	st, err := p.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) && !top {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case st.Mode().IsRegular():
		return p.file(name, st)
	case st.IsDir():
		if err := p.add(name, st, ""); err != nil {
			return err
		}
		if p.opts.Leave != nil && !top && p.opts.Leave(p.shown(name)) {
			return fs.SkipDir
		}
		return nil
	case st.Mode().Type() == fs.ModeSymlink:
		target, err := p.root.Readlink(name)
		if err != nil {
			return err
		}
		return p.add(name, st, target)
	}
	if top {
		return &fs.PathError{Op: "pack", Path: p.top, Err: errSpecial}
	}
	p.report.skip(p.shown(name))
	return nil
}

// entryName is name with the packed path replaced by As.
func (p *packer) entryName(name string) string {
	if !p.whole {
		return p.opts.As
	}
	return path.Join(p.opts.As, name)
}

func (p *packer) add(name string, st fs.FileInfo, target string) error {
	h, err := p.header(name, st, target)
	if err != nil {
		return err
	}
	return p.write(h, name)
}

func (p *packer) write(h *tar.Header, name string) error {
	if err := p.out.WriteHeader(h); err != nil {
		return fmt.Errorf("pack %s: %w", p.shown(name), err)
	}
	p.report.Entries++
	return nil
}

func (p *packer) header(name string, st fs.FileInfo, target string) (*tar.Header, error) {
	h, err := tar.FileInfoHeader(st, target)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", p.shown(name), err)
	}
	h.Name, h.Format = p.entryName(name), tar.FormatPAX
	if st.IsDir() {
		h.Name += "/"
	}
	h.Uname, h.Gname = "", "" // names of this machine mean nothing on the other
	return h, nil
}

func (p *packer) file(name string, st fs.FileInfo) error {
	// NONBLOCK: a FIFO that took the file's place must not stop us.
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !now.Mode().IsRegular() || !os.SameFile(st, now) {
		return &fs.PathError{Op: "pack", Path: p.shown(name), Err: errReplaced}
	}
	h, err := p.header(name, now, "")
	if err != nil {
		return err
	}
	if first, ok := p.linked(now, h.Name); ok {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return p.write(h, name)
	}
	var content io.Reader = contextReader{p.ctx, f}
	if h.Size <= smallFile {
		p.held.Reset()
		if _, err := p.held.ReadFrom(io.LimitReader(content, maxWhole)); err != nil {
			return fmt.Errorf("pack %s: %w", p.shown(name), err)
		}
		h.Size = int64(p.held.Len())
		if rest := content; h.Size < maxWhole {
			content = &p.held
		} else {
			content = io.MultiReader(&p.held, rest)
		}
	}
	if err := p.write(h, name); err != nil {
		return err
	}
	n, err := p.content.move(p.out, io.LimitReader(content, h.Size), h.Size)
	if err == nil && n < h.Size {
		_, err = p.content.move(p.out, io.LimitReader(zeros{}, h.Size-n), h.Size-n)
	}
	p.report.Bytes += h.Size
	if err != nil {
		return fmt.Errorf("pack %s: %w", p.shown(name), err)
	}
	if more, _ := content.Read(make([]byte, 512)); n < h.Size || more > 0 {
		if p.changed != "" {
			p.more++
		} else {
			p.changed = p.shown(name)
		}
	}
	return nil
}

// linked returns the entry that has the file's content already.
func (p *packer) linked(st fs.FileInfo, entry string) (string, bool) {
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Nlink < 2 {
		return "", false
	}
	id := linkID{uint64(sys.Dev), uint64(sys.Ino)} //nolint:unconvert // other systems have narrower fields
	if first, ok := p.links[id]; ok {
		return first, true
	}
	if len(p.links) < maxLinks {
		p.links[id] = entry
	}
	return "", false
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
