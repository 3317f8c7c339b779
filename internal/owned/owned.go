package owned

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrForeign tells that something is there that msb did not make.
var ErrForeign = errors.New("not made by msb")

// Form says whether msb gives this name to an entry of this type, one of fs.ModeDir, fs.ModeSocket, other types and
// 0 for a regular file. What may be in a directory is its own form.
type Form func(name string, mode fs.FileMode) (inside Form, ok bool)

// Files is the form of a directory that holds regular files alone.
func Files(own func(name string) bool) Form {
	return func(name string, mode fs.FileMode) (Form, bool) { return nil, mode == 0 && own(name) }
}

// Dirs is the form of a directory that holds directories alone.
func Dirs(own func(name string) bool, inside Form) Form {
	return func(name string, mode fs.FileMode) (Form, bool) { return inside, mode == fs.ModeDir && own(name) }
}

// Open opens a directory in parent. It is ErrForeign if it is a link or another file, belongs to another user, or is a
// mount.
func Open(parent *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(parent.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	path := filepath.Join(parent.Name(), name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("%w: %s is no directory", ErrForeign, path)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	dir := os.NewFile(uintptr(fd), path)
	outer, err := stat(parent, "")
	inner, innerErr := stat(dir, "")
	switch {
	case err != nil || innerErr != nil:
		err = errors.Join(err, innerErr)
	case inner.uid != uint32(os.Geteuid()):
		err = fmt.Errorf("%w: %s belongs to another user", ErrForeign, path)
	case inner.mount != outer.mount:
		err = fmt.Errorf("%w: %s is a mount", ErrForeign, path)
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// Check looks for the first entry below dir that does not have the form, ErrForeign.
func Check(dir *os.File, form Form) error {
	return each(dir, form, func(name string, inside Form) error {
		if inside == nil {
			return nil
		}
		sub, err := Open(dir, name)
		if err != nil {
			return unlessGone(err)
		}
		return errors.Join(Check(sub, inside), sub.Close())
	})
}

// Remove deletes a directory that Open opened in parent under name, and what is in it; the entry last goes at last. If
// anything in it does not have the form, that is ErrForeign and nothing is deleted. What somebody else deleted meanwhile is no error.
func Remove(parent, dir *os.File, name string, form Form, last string) error {
	if err := Check(dir, form); err != nil {
		return err
	}
	if err := empty(dir, form, last); err != nil {
		return err
	}
	return unlessGone(unlink(parent, name, unix.AT_REMOVEDIR))
}

func empty(dir *os.File, form Form, last string) error {
	err := each(dir, form, func(name string, inside Form) error {
		if name == last {
			return nil
		}
		if inside == nil {
			return unlessGone(unlink(dir, name, 0))
		}
		sub, err := Open(dir, name)
		if err != nil {
			return unlessGone(err)
		}
		return errors.Join(empty(sub, inside, ""), sub.Close(), unlessGone(unlink(dir, name, unix.AT_REMOVEDIR)))
	})
	if err != nil || last == "" {
		return err
	}
	return unlessGone(unlink(dir, last, 0))
}

// each calls do for the entries of dir; one that does not have the form is ErrForeign. inside is nil for what is no
// directory.
func each(dir *os.File, form Form, do func(name string, inside Form) error) error {
	names, err := Names(dir)
	if err != nil {
		return err
	}
	own, err := stat(dir, "")
	if err != nil {
		return err
	}
	for _, name := range names {
		st, err := stat(dir, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		inside, ok := form(name, st.mode)
		if st.mode != fs.ModeDir {
			inside = nil
		} else if inside == nil {
			inside = nothing
		}
		if !ok {
			return fmt.Errorf("%w: %s", ErrForeign, filepath.Join(dir.Name(), name))
		}
		if st.mount != own.mount {
			return fmt.Errorf("%w: %s is a mount", ErrForeign, filepath.Join(dir.Name(), name))
		}
		if err := do(name, inside); err != nil {
			return err
		}
	}
	return nil
}

func nothing(string, fs.FileMode) (Form, bool) { return nil, false }

// Names are those of the entries of dir, however often it was read before.
func Names(dir *os.File) ([]string, error) {
	if _, err := dir.Seek(0, 0); err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	return names, unlessGone(err) // one that somebody removed has none
}

func unlink(dir *os.File, name string, flags int) error {
	if err := unix.Unlinkat(int(dir.Fd()), name, flags); err != nil {
		return &os.PathError{Op: "remove", Path: filepath.Join(dir.Name(), name), Err: err}
	}
	return nil
}

func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
