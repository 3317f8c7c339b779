package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// namespaceFlags are the namespaces of a VMM: nobody to signal or trace (pid),
// no network but a loopback that is down (net), no file but those of the plan
// (mnt), no shared memory of others (ipc).
const namespaceFlags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWNET |
	unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// stagingDir is where the new root is mounted for the moment before it becomes
// the root. Any directory that every Linux has will do.
const stagingDir = "/proc"

// grant is one file or directory of the plan.
type grant struct {
	path     string
	fd       int // a detached mount of what the new root's place covers, else -1
	dir      bool
	symlink  string
	readOnly bool
}

// enterRoot makes a root of nothing but the plan's files, at their own paths,
// and enters it. It needs the namespaces of namespaceFlags.
func enterRoot(p *Plan) error {
	// Nothing that is mounted here may show up outside.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	grants, err := grantsOf(p)
	if err != nil {
		return err
	}
	// A device node of the new root must not work, were one ever made there.
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("msb", stagingDir, "tmpfs", flags, "mode=0755,size=1m,nr_inodes=4k"); err != nil {
		return fmt.Errorf("mount an empty root: %w", err)
	}
	for _, g := range grants {
		if err := g.place(stagingDir); err != nil {
			return fmt.Errorf("grant %s: %w", g.path, err)
		}
	}
	return pivot(stagingDir)
}

// grantsOf looks at everything in the plan, and detaches a copy of the mounts that stagingDir is going to cover.
//
// The others are opened one by one, when they are placed: a process with threads waits some 10 ms when it opens its 65th
// file, for all processors to take notice of its larger table.
func grantsOf(p *Plan) ([]grant, error) {
	var grants []grant
	if p.Descriptors {
		g, err := grantOf(Descriptors, true)
		if err != nil {
			return nil, fmt.Errorf("grant %s: %w", Descriptors, err)
		}
		grants = append(grants, g)
	}
	for _, set := range []struct {
		paths    []string
		readOnly bool
	}{{p.ReadOnly, true}, {p.ReadWrite, false}, {p.Devices, false}} {
		for _, path := range set.paths {
			g, err := grantOf(path, set.readOnly)
			if set.readOnly && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("grant %s: %w", path, err)
			}
			grants = append(grants, g)
		}
	}
	// A directory before what lies in it, or it would cover it.
	slices.SortFunc(grants, func(a, b grant) int { return strings.Compare(a.path, b.path) })
	return grants, nil
}

func grantOf(path string, readOnly bool) (grant, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return grant{}, err
	}
	g := grant{path: path, fd: -1, dir: info.IsDir(), readOnly: readOnly}
	if info.Mode()&fs.ModeSymlink != 0 {
		g.symlink, err = os.Readlink(path)
	} else if strings.HasPrefix(path, stagingDir+"/") {
		err = g.open()
	}
	return g, err
}

// open detaches a copy of the grant's mount.
func (g *grant) open() (err error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if g.dir {
		// A directory with locked mounts below it can be copied only with them.
		flags |= unix.AT_RECURSIVE
	}
	g.fd, err = unix.OpenTree(unix.AT_FDCWD, g.path, flags)
	return err
}

// place attaches the grant at its own path under root.
func (g grant) place(root string) error {
	target := filepath.Join(root, g.path)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil { //nolint:gosec // a throw-away root
		return err
	}
	if g.symlink != "" {
		return os.Symlink(g.symlink, target)
	}
	if g.fd < 0 {
		if err := g.open(); err != nil {
			return err
		}
	}
	defer unix.Close(g.fd)
	if err := g.mountPoint(target); err != nil {
		return err
	}
	if err := unix.MoveMount(g.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID}
	if g.readOnly {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV
	}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &attr)
}

func (g grant) mountPoint(target string) error {
	if g.dir {
		return os.MkdirAll(target, 0o755) //nolint:gosec // a throw-away root
	}
	f, err := os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// pivot makes dir the root and lets go of the old one.
func pivot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	// Both roots at one place: the old one is then on top and unmounted from it.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return unix.MountSetattr(unix.AT_FDCWD, "/", 0, &attr)
}

// clean resolves links and makes a path absolute, so that it means the same in
// the new root, where the links are not.
func clean(path string) (string, error) {
	if strings.ContainsRune(path, 0) {
		return "", fmt.Errorf("path %q holds a NUL", path)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(abs)
}
