package tartree

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"syscall"
	"time"
)

var (
	// errOutside means that an entry's name or a link leads out of the
	// directory that the archive is extracted into.
	errOutside = errors.New("archive entry leads outside of the directory")

	// errNotAsked means that an archive holds more than the file or directory
	// that Extract was asked for.
	errNotAsked = errors.New("archive entry was not asked for")

	// errLinked means that a symbolic link is where Extract is to make a directory.
	errLinked = errors.New("a symbolic link is in the directory's place; remove it, or name what it leads to")
)

// Owner is a numeric owner.
type Owner struct{ UID, GID int }

// UnpackOptions says how entries are stored.
type UnpackOptions struct {
	// Owner is given to every file. nil: the process's own, or with KeepOwner
	// what the archive says.
	Owner     *Owner
	KeepOwner bool
	// DropSetID takes setuid and setgid bits off.
	DropSetID bool
	// MaxBytes and MaxEntries bound what is written; 0 is no bound. Directories
	// that the archive doesn't list count as entries. An archive above them ends
	// with errLimit.
	MaxBytes, MaxEntries int64
	// PastCache has what is written to an open file go past the kernel's cache, or not any more. It is used for long files
	// where it can be done: in a guest the cache takes more time than the disk does. nil for none.
	PastCache func(f *os.File, past bool) error
}

// errLimit means that an archive holds more than UnpackOptions allows.
var errLimit = errors.New("archive is larger than allowed")

// maxDirs is how many directories get the archive's permissions and times after
// their content, maxDirNames how many bytes their names have. Beyond it they keep
// write permission and the time of the copy.
const (
	maxDirs     = 1 << 16
	maxDirNames = 8 << 20
)

type dirMeta struct {
	name string
	mode fs.FileMode
	time time.Time
}

type unpacker struct {
	ctx    context.Context
	root   *os.Root
	opts   UnpackOptions
	dirs   []dirMeta
	names  int // bytes of the names of dirs
	report Report
	above  int64 // directories that were made and are no entries

	content copier
}

// Unpack extracts the archive r into root. Files that exist are replaced;
// directories that exist are merged, also through links that stay in root.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, o UnpackOptions) (Report, error) {
	u := &unpacker{ctx: ctx, root: root, opts: o}
	err := u.entries(tar.NewReader(contextReader{ctx, r}), "")
	return u.report, err
}

// Extract extracts an archive of one file or directory, its first entry, and
// names it as in parent. If as is a directory already, the archive's directory
// is merged with it; if it is a symbolic link, that is errLinked. Any entry
// outside of the first one is errNotAsked.
func Extract(ctx context.Context, r io.Reader, parent *os.Root, as string, o UnpackOptions) (Report, error) {
	in := tar.NewReader(contextReader{ctx, r})
	h, err := in.Next()
	if err != nil {
		return Report{}, fmt.Errorf("read the archive: %w", err)
	}
	u := &unpacker{ctx: ctx, root: parent, opts: o}
	if h.Typeflag != tar.TypeDir {
		if h.Typeflag == tar.TypeLink {
			return u.report, fmt.Errorf("%w: it begins with a hard link", errNotAsked)
		}
		if err := u.entry(in, h, as); err != nil {
			return u.report, err
		}
		if next, err := in.Next(); err == nil {
			return u.report, fmt.Errorf("%w: %.200q", errNotAsked, next.Name)
		} else if !errors.Is(err, io.EOF) {
			return u.report, fmt.Errorf("read the archive: %w", err)
		}
		return u.report, nil
	}
	fresh := false
	if as != "." {
		st, err := parent.Lstat(as)
		if err == nil && st.Mode().Type() == fs.ModeSymlink { // an earlier copy may have made it, and the guest chosen where it leads
			return u.report, &fs.PathError{Op: "extract", Path: as, Err: errLinked}
		}
		fresh = errors.Is(err, fs.ErrNotExist)
		if err := u.directory(as); err != nil {
			return u.report, err
		}
	}
	inner, err := parent.OpenRoot(as)
	if err != nil {
		return u.report, err
	}
	defer func() { _ = inner.Close() }()
	u.root, u.report.Entries = inner, 1
	if err := u.entries(in, path.Clean(h.Name)); err != nil {
		return u.report, err
	}
	if !fresh {
		return u.report, nil
	}
	if err := u.own(h, "."); err != nil {
		return u.report, err
	}
	return u.report, u.settle(dirMeta{".", u.mode(h), h.ModTime})
}

// entries extracts what is left of the archive. With top, each entry's name
// must begin with it.
func (u *unpacker) entries(in *tar.Reader, top string) error {
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		name, err := inside(h.Name, top)
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeLink {
			if h.Linkname, err = inside(h.Linkname, top); err != nil {
				return err
			}
		}
		if err := u.entry(in, h, name); err != nil {
			return err
		}
	}
	for i := len(u.dirs) - 1; i >= 0; i-- {
		if err := u.settle(u.dirs[i]); err != nil {
			return err
		}
	}
	return nil
}

// inside makes an entry's name relative to the directory, or to top.
func inside(entry, top string) (string, error) {
	for part := range strings.SplitSeq(entry, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: %.200q", errOutside, entry)
		}
	}
	name := path.Clean("/" + entry)[1:]
	if top != "" && top != "." && top != "/" {
		rest, ok := strings.CutPrefix(name+"/", strings.TrimPrefix(top, "/")+"/")
		if !ok {
			return "", fmt.Errorf("%w: %.200q", errNotAsked, entry)
		}
		name = strings.TrimSuffix(rest, "/")
	}
	if name == "" {
		name = "."
	}
	return name, nil
}

// maxName bounds names and links of entries, in bytes: trees may be deeper than PATH_MAX, and errors name them.
const maxName = 64 << 10

func (u *unpacker) entry(in io.Reader, h *tar.Header, name string) error {
	if len(h.Name) > maxName || len(h.Linkname) > maxName {
		return fmt.Errorf("%w: the name of %.200q, or its link, has more than %d bytes", errLimit, h.Name, maxName)
	}
	// The size is the archive's claim; of a sparse file it costs the sender nothing.
	if o := u.opts; (o.MaxBytes > 0 && h.Size > o.MaxBytes-u.report.Bytes) || !u.room(1) {
		return fmt.Errorf("%w: at %.200q, after %d files and %d bytes", errLimit, h.Name, u.report.Entries, u.report.Bytes)
	}
	if err := u.store(in, h, name); err != nil {
		if escapes(err) {
			return fmt.Errorf("%w: %.200q", errOutside, h.Name)
		}
		return fmt.Errorf("extract %.200q: %w", h.Name, err)
	}
	return nil
}

// room reports whether so many more entries may be made.
func (u *unpacker) room(entries int64) bool {
	return u.opts.MaxEntries <= 0 || u.report.Entries+u.above+entries <= u.opts.MaxEntries
}

// escapes tells os.Root's refusal, for which it exports no error.
func escapes(err error) bool {
	var p *fs.PathError
	for errors.As(err, &p) {
		if err = p.Err; err.Error() == "path escapes from parent" {
			return true
		}
	}
	return false
}

func (u *unpacker) store(in io.Reader, h *tar.Header, name string) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return u.storeDir(h, name)
	case tar.TypeReg, tar.TypeGNUSparse:
		if name == "." {
			return errors.New("the directory itself can't be a file")
		}
		if err := u.makeAbove(name); err != nil {
			return err
		}
		if err := u.storeFile(in, h, name); err != nil {
			return err
		}
	case tar.TypeSymlink:
		if err := u.replace(name); err != nil {
			return err
		}
		if err := u.root.Symlink(h.Linkname, name); err != nil {
			return err
		}
		if err := u.own(h, name); err != nil {
			return err
		}
	case tar.TypeLink:
		if h.Linkname == name {
			return errors.New("a hard link to itself")
		}
		if err := u.replace(name); err != nil {
			return err
		}
		if err := u.root.Link(h.Linkname, name); err != nil {
			return err
		}
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		u.report.skip(name)
		return nil
	default:
		return nil // extended headers that stand alone
	}
	u.report.Entries++
	return nil
}

func (u *unpacker) storeDir(h *tar.Header, name string) error {
	if name == "." {
		return nil // it exists and is the caller's
	}
	_, err := u.root.Stat(name)
	if err := u.directory(name); err != nil {
		return err
	}
	u.report.Entries++
	if err == nil {
		return nil // merged: it keeps its permissions
	}
	if err := u.own(h, name); err != nil {
		return err
	}
	if len(u.dirs) < maxDirs && u.names+len(name) <= maxDirNames {
		u.names += len(name)
		u.dirs = append(u.dirs, dirMeta{name, u.mode(h), h.ModTime})
		return nil
	}
	return u.root.Chmod(name, u.mode(h)|0o700)
}

// directory makes name a directory; a file in its place is replaced.
func (u *unpacker) directory(name string) error {
	st, err := u.root.Stat(name)
	if err == nil && st.IsDir() {
		return nil
	}
	if _, lerr := u.root.Lstat(name); lerr == nil {
		if err := u.root.Remove(name); err != nil {
			return err
		}
	}
	if err := u.makeAbove(name); err != nil {
		return err
	}
	return u.root.MkdirAll(name, 0o755)
}

// makeAbove makes the directories that an archive's entry is in and doesn't list. They are counted: one long name may stand
// for 32,768 of them.
func (u *unpacker) makeAbove(name string) error {
	dir := path.Dir(name)
	if st, err := u.root.Stat(dir); err == nil && st.IsDir() {
		return nil
	}
	elements := strings.Split(dir, "/")
	there := sort.Search(len(elements), func(i int) bool {
		_, err := u.root.Stat(strings.Join(elements[:i+1], "/"))
		return err != nil
	})
	missing := int64(len(elements) - there)
	if !u.room(missing) {
		return fmt.Errorf("%w: after %d files, in %d directories that are not there", errLimit, u.report.Entries, missing)
	}
	u.above += missing
	return u.root.MkdirAll(dir, 0o755)
}

// replace clears the place of a link.
func (u *unpacker) replace(name string) error {
	if name == "." {
		return errors.New("the directory itself can't be a link")
	}
	if err := u.makeAbove(name); err != nil {
		return err
	}
	if err := u.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// storeFile writes beside a file that exists and renames over it, so that it is
// the old one or the new one. A long file that is new is named at its end, too: of
// one that is killed in the middle nothing has the name.
func (u *unpacker) storeFile(in io.Reader, h *tar.Header, name string) error {
	if st, err := u.root.Lstat(name); err == nil && st.IsDir() {
		return errors.New("a directory is in the file's place")
	}
	f, partial, err := u.create(name, h.Size > shortBytes)
	if err != nil {
		return err
	}
	n, err := u.past(f, in, h.Size)
	if err == nil {
		var rest int64
		rest, err = u.content.move(f, in, h.Size-n)
		n += rest
	}
	u.report.Bytes += n
	err = errors.Join(err, f.Close())
	if err == nil {
		err = u.own(h, partial)
	}
	if err == nil {
		err = u.root.Chmod(partial, u.mode(h))
	}
	if err == nil {
		err = u.root.Chtimes(partial, h.ModTime, h.ModTime)
	}
	if err == nil && partial != name {
		err = u.root.Rename(partial, name)
	}
	if err != nil {
		return errors.Join(err, u.root.Remove(partial))
	}
	return nil
}

// past writes the whole parts of a long file past the cache. What it leaves is for the caller.
func (u *unpacker) past(f *os.File, in io.Reader, size int64) (n int64, err error) {
	past := size >= copyBytes && u.opts.PastCache != nil && u.opts.PastCache(f, true) == nil
	if !past {
		return 0, nil
	}
	part := u.content.room(copyBytes)
	for ; past && size-n >= copyBytes; n += copyBytes {
		if _, err := io.ReadFull(in, part); err != nil {
			return n, err
		}
		_, err := f.Write(part)
		if errors.Is(err, syscall.EINVAL) { // the file system has it otherwise
			past = false
			if _, err = f.Seek(n, io.SeekStart); err == nil {
				err = u.opts.PastCache(f, false)
			}
			if err == nil {
				_, err = f.Write(part)
			}
		}
		if err != nil {
			return n, err
		}
	}
	return n, u.opts.PastCache(f, false)
}

// create makes the file, under another name where the file exists or is to be written beside it.
func (u *unpacker) create(name string, beside bool) (f *os.File, as string, err error) {
	if !beside {
		f, err = u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, name, err
		}
	}
	// Copies that were killed may have left some.
	as = path.Join(path.Dir(name), ".msb-copy-"+rand.Text())
	f, err = u.root.OpenFile(as, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	var failed *fs.PathError
	if errors.As(err, &failed) { // which names the file that was asked for
		failed.Path = name
	}
	return f, as, err
}

func (u *unpacker) mode(h *tar.Header) fs.FileMode {
	mode := h.FileInfo().Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	if u.opts.DropSetID {
		mode &^= fs.ModeSetuid | fs.ModeSetgid
	}
	return mode
}

func (u *unpacker) own(h *tar.Header, name string) error {
	switch {
	case u.opts.Owner != nil:
		return u.root.Lchown(name, u.opts.Owner.UID, u.opts.Owner.GID)
	case u.opts.KeepOwner:
		return u.root.Lchown(name, h.Uid, h.Gid)
	}
	return nil
}

// settle gives a directory what the archive says, unless a later entry has put a link to something else in its place.
func (u *unpacker) settle(d dirMeta) error {
	if st, err := u.root.Lstat(d.name); err != nil || !st.IsDir() {
		return err
	}
	if err := u.root.Chmod(d.name, d.mode); err != nil {
		return err
	}
	return u.root.Chtimes(d.name, d.time, d.time)
}
