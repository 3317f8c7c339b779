package cow

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// temporaryPrefix begins the name of a file that Apply is writing, beside the one
// that it replaces. A kill may leave it.
const temporaryPrefix = ".msb-apply-"

// Order sorts changes so that each can be applied after those before it: what is
// removed first, from the deepest on, then what is made, from the top on.
func Order(changes []*Change) {
	rank := func(c *Change) int {
		if c.Kind == Deleted {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(changes, func(a, b *Change) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		if rank(a) == 0 {
			return cmp.Compare(b.Path, a.Path)
		}
		return cmp.Compare(a.Path, b.Path)
	})
}

// Apply makes the host's file what the guest's is, and records that. allow
// reports which refusals are overridden. After an error or a kill at any point, a
// file is either the old one or the new one.
func (t *Tree) Apply(ctx context.Context, c *Change, allow func(name string) bool) error {
	if r := c.Refused(allow); r != nil {
		return fmt.Errorf("%w: %s (%s)", ErrRefused, r.Why, r.Name)
	}
	parent, err := t.dir(path.Dir(c.Path))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }() // each write is looked at by itself
	a := &application{Tree: t, ctx: ctx, Change: c, parent: parent, name: path.Base(c.Path)}
	if err := a.check(); err != nil {
		return err
	}
	if err := a.apply(); err != nil {
		return err
	}
	now, _, err := lookIn(parent, a.name)
	if err == nil && !now.directory() {
		t.opts.Base[c.Path] = now
		err = appendTo(t.opts.BaseFile, c.Path, now)
	}
	return err
}

// application is one Apply.
type application struct {
	*Tree
	*Change
	ctx    context.Context
	parent *os.Root
	name   string
}

// check makes sure that the host's file is the one that was compared.
func (a *application) check() error {
	now, _, err := lookIn(a.parent, a.name)
	if err == nil && !same(now, a.host) {
		err = ErrChanged
	}
	return err
}

func (a *application) apply() error {
	if a.Kind == Deleted {
		return a.parent.Remove(a.name) // of a directory that holds something, nothing
	}
	if a.host.directory() && !a.New.Mode.IsDir() {
		if err := a.parent.Remove(a.name); err != nil {
			return err
		}
		a.host = File{}
	}
	switch {
	case a.New.Mode.IsDir():
		if a.Old != nil {
			if err := a.parent.Remove(a.name); err != nil {
				return err
			}
		}
		return a.parent.Mkdir(a.name, 0o777) // less the umask
	case a.New.Mode.Type() == fs.ModeSymlink:
		return a.replace(func(temporary string) error { return a.parent.Symlink(a.New.Target, temporary) })
	case !a.New.Mode.IsRegular():
		return fmt.Errorf("%w: it is no file, directory or link", ErrRefused)
	case a.Kind == Mode:
		f, err := openIn(a.parent, a.name, a.host)
		if err != nil {
			return err
		}
		return errors.Join(f.Chmod(a.New.Mode.Perm()), f.Close())
	}
	return a.replace(a.write)
}

// replace has make write the new version under a temporary name, and renames it.
func (a *application) replace(makeIt func(temporary string) error) (err error) {
	temporary := temporaryName()
	defer func() {
		if err != nil {
			err = errors.Join(err, unlessGone(a.parent.Remove(temporary)))
		}
	}()
	if err := makeIt(temporary); err != nil {
		return err
	}
	if err := a.check(); err != nil {
		return err
	}
	if a.host != (File{}) {
		return a.parent.Rename(temporary, a.name)
	}
	dir, err := a.parent.Open(".")
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }() // it was read only
	err = noReplace(dir, temporary, a.name)
	if errors.Is(err, syscall.EINVAL) { // FAT, some network file systems
		if err = a.check(); err == nil {
			err = a.parent.Rename(temporary, a.name)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		err = ErrChanged
	}
	return err
}

func temporaryName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return temporaryPrefix + hex.EncodeToString(b[:])
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// write fills a new file with what the guest has.
func (a *application) write(temporary string) error {
	room, err := a.opts.Room()
	if err != nil {
		return err
	}
	if a.New.Size > room { // a sparse file costs the guest nothing
		return fmt.Errorf("it has %d bytes, and %d may be written here: %w", a.New.Size, room, syscall.ENOSPC)
	}
	f, err := a.parent.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, a.New.Mode.Perm()) // less the umask
	if err != nil {
		return err
	}
	if a.Old != nil && a.Old.Mode.IsRegular() {
		err = f.Chmod(a.New.Mode.Perm()) // which permissions() has made
	}
	if err == nil {
		err = a.copyTo(f)
	}
	return errors.Join(err, f.Close())
}

// copyTo copies exactly the bytes that were compared and, if they were, shown.
func (a *application) copyTo(f *os.File) error {
	in, err := a.opts.Open(a.ctx, a.Path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was read only
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(in, a.New.Size+1))
	if err != nil {
		return err
	}
	if n != a.New.Size || a.shown && !bytes.Equal(sum.Sum(nil), a.digest) {
		return fmt.Errorf("in the sandbox %w", ErrChanged)
	}
	return nil
}

// Within reports whether a change is of the file or directory at a path, or
// below it. "." is everything.
func (c *Change) Within(p string) bool {
	return p == "." || c.Path == p || strings.HasPrefix(c.Path, p+"/")
}
