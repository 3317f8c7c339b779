package cow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// Options are what a Tree needs beside the host's directory.
type Options struct {
	// Base is what the guest was shown, BaseFile where it is kept.
	Base     Base
	BaseFile string
	// Hidden reports whether the guest doesn't see the host's file at path.
	Hidden func(path string) bool
	// Confines says why a file that decides what the sandbox may do may not be
	// written; "" for any other file.
	Confines func(path string) string
	// Open reads a regular file of the guest's layer.
	Open func(ctx context.Context, path string) (io.ReadCloser, error)
	// Room is how many bytes may be written.
	Room func() (int64, error)
}

// Tree is a directory of the host that a guest has changed for itself.
type Tree struct {
	root  *os.Root
	opts  Options
	mount mount
}

// New takes over root, the top of the host's directory.
func New(root *os.Root, o Options) (*Tree, error) {
	t := &Tree{root: root, opts: o}
	var err error
	if t.mount, err = mountOfRoot(root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return t, nil
}

// Close lets go of the directory.
func (t *Tree) Close() error { return t.root.Close() }

var (
	// errNoDir means that a path leads through what is no directory: a link, too.
	errNoDir = errors.New("there is no directory on the way")

	// errMount means that a path leads into another mount.
	errMount = errors.New("another file system is mounted there")
)

func mountOfRoot(root *os.Root) (mount, error) {
	f, err := root.Open(".")
	if err != nil {
		return mount{}, err
	}
	defer func() { _ = f.Close() }() // it was read only
	return mountOf(f)
}

// dir opens a directory name by name. A link on the way is errNoDir, also one
// that comes at this very moment.
func (t *Tree) dir(p string) (*os.Root, error) {
	at, err := t.root.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	if p == "." {
		return at, nil
	}
	for name := range strings.SplitSeq(p, "/") {
		next, err := t.enter(at, name)
		_ = at.Close() // it was read only
		if err != nil {
			return nil, err
		}
		at = next
	}
	return at, nil
}

func (t *Tree) enter(at *os.Root, name string) (*os.Root, error) {
	seen, err := at.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !seen.IsDir() {
		return nil, errNoDir
	}
	if err != nil {
		return nil, err
	}
	next, err := at.OpenRoot(name) // which follows links
	if err != nil {
		return nil, err
	}
	got, err := next.Stat(".")
	var m mount
	if err == nil {
		m, err = mountOfRoot(next)
	}
	switch {
	case err != nil:
	case !os.SameFile(seen, got):
		err = errNoDir
	case m != t.mount:
		err = errMount
	}
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return next, nil
}

// look is the host's file at a path; the zero File and nil for none.
func (t *Tree) look(p string) (File, fs.FileInfo, error) {
	parent, err := t.dir(path.Dir(p))
	if errors.Is(err, errNoDir) {
		return File{}, nil, nil
	}
	if err != nil {
		return File{}, nil, err
	}
	defer func() { _ = parent.Close() }() // it was read only
	return lookIn(parent, path.Base(p))
}

func lookIn(parent *os.Root, name string) (File, fs.FileInfo, error) {
	info, err := parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, nil, nil
	}
	if err != nil {
		return File{}, nil, err
	}
	return fileOf(info), info, nil
}

// same reports whether two looks at a path saw the same version. Of directories
// the content may differ.
func same(a, b File) bool {
	if a.directory() && b.directory() {
		return a.Inode == b.Inode
	}
	return a == b
}

func (f File) directory() bool { return f.Mode&syscall.S_IFMT == syscall.S_IFDIR }

// openHost opens the regular file that a look at p has found.
func (t *Tree) openHost(p string, was File) (*os.File, error) {
	parent, err := t.dir(path.Dir(p))
	if err != nil {
		return nil, err
	}
	defer func() { _ = parent.Close() }() // it was read only
	return openIn(parent, path.Base(p), was)
}

func openIn(parent *os.Root, name string, was File) (*os.File, error) {
	// A FIFO that has come since is not waited for.
	f, err := parent.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && fileOf(info) != was {
		err = fmt.Errorf("%s: %w", name, ErrChanged)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
