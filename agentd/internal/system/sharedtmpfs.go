//go:build linux

package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// SharedTmpfs is a file system in memory that the agent mounts for several containers.
type SharedTmpfs struct {
	Name     string // an element of a path
	Size     int64  // 0 for half of the memory
	Mode     uint32 // 0 for 01777
	UID, GID uint32
}

func (t *SharedTmpfs) place() string { return filepath.Join("/run/msb/tmpfs", t.Name) }

func (t *SharedTmpfs) mode() uint32 {
	if m := t.Mode & 0o7777; m != 0 {
		return m
	}
	return 0o1777
}

// Mount mounts it where the agent alone sees it.
func (t *SharedTmpfs) Mount() error {
	if err := os.MkdirAll(t.place(), 0o700); err != nil {
		return fmt.Errorf("make room for a tmpfs: %w", err)
	}
	number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
	options := [][2]string{{"mode", strconv.FormatUint(uint64(t.mode()), 8)}, {"uid", number(t.UID)}, {"gid", number(t.GID)}}
	if t.Size > 0 {
		options = append(options, [2]string{"size", strconv.FormatInt(t.Size, 10)})
	}
	m, err := newMount("tmpfs", unix.MOUNT_ATTR_NODEV, options...)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // it is attached by then
	if err := unix.MoveMount(int(m.Fd()), "", unix.AT_FDCWD, t.place(), unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("attach a tmpfs: %w", err)
	}
	return nil
}

// Clone makes another mount of what is at a local path in it, "" for its root, attached nowhere, and tells whether that is a
// file. Where nothing is, directories with the root's mode are made. Links that containers put there lead nowhere outside of it.
func (t *SharedTmpfs) Clone(sub string, attributes int) (f *os.File, file bool, err error) {
	root, err := os.OpenRoot(t.place())
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = root.Close() }() // nothing was written to it
	for i, c := range sub {
		if c == '/' {
			err = t.makeDir(root, sub[:i])
		}
		if err != nil {
			return nil, false, err
		}
	}
	if sub != "" {
		err = t.makeDir(root, sub)
	}
	if err != nil {
		return nil, false, err
	}
	dir, err := root.Open(".")
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = dir.Close() }() // nothing was written to it
	at, err := unix.Openat2(int(dir.Fd()), "./"+sub, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, false, fmt.Errorf("find %.80q in a tmpfs: %w", sub, err)
	}
	defer func() { _ = unix.Close(at) }() // nothing was written to it
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, false, err
	}
	f, err = cloneMount(at, strings.TrimSuffix(t.place()+"/"+sub, "/"), attributes)
	return f, st.Mode&unix.S_IFMT != unix.S_IFDIR, err
}

func (t *SharedTmpfs) makeDir(root *os.Root, name string) error {
	err := root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		mode := fs.FileMode(t.mode() & 0o777)
		for bit, of := range map[uint32]fs.FileMode{unix.S_ISVTX: fs.ModeSticky, unix.S_ISGID: fs.ModeSetgid, unix.S_ISUID: fs.ModeSetuid} {
			if t.mode()&bit != 0 {
				mode |= of
			}
		}
		err = root.Chmod(name, mode)
	}
	return err
}
