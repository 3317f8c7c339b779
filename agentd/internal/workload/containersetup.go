//go:build linux

package workload

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/internal/truststore"
)

// apply makes the container of the namespaces in which the process was started. First comes its root: from then on there is
// no path by which a link of an image could lead anywhere else.
func (s *ContainerSetup) apply(cwd string) error {
	if err := ownCgroups(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	devices, err := s.makeDevices()
	if err != nil {
		return fmt.Errorf("make devices: %w", err)
	}
	if err := s.enterRoot(); err != nil {
		return err
	}
	// Before the mounts, which are no part of the image. As for the sandbox's own root, a list that can't be added to is none
	// that the container couldn't do without.
	_, _ = truststore.Install("/", s.CA)
	if err := mountDev(devices); err != nil {
		return fmt.Errorf("make /dev: %w", err)
	}
	for i := range s.Mounts {
		if err := s.Mounts[i].apply(); err != nil {
			return fmt.Errorf("mounts[%d] at %.80q: %w", i, s.Mounts[i].Target, err)
		}
	}
	if s.Hostname != "" {
		if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
			return fmt.Errorf("hostname: %w", err)
		}
	}
	if err := s.setSysctls(); err != nil {
		return err
	}
	if cwd != "" {
		if err := makeDirs(cwd); err != nil {
			return fmt.Errorf("cwd: %w", err)
		}
	}
	for _, p := range s.ReadOnlyPaths {
		if err := protect(p); err != nil {
			return fmt.Errorf("readonlyPaths: %.80q: %w", p, err)
		}
	}
	for _, p := range s.MaskedPaths {
		if err := mask(p); err != nil {
			return fmt.Errorf("maskedPaths: %.80q: %w", p, err)
		}
	}
	if s.ReadOnlyRoot {
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	return nil
}

// The mounts that are handed over.
const (
	stageRoot = stageRest + iota
	stagePTS
	stageBinds
)

// enterRoot makes the container's root the process's.
func (s *ContainerSetup) enterRoot() error {
	at, err := unix.Open(filepath.Join(s.Place, "root"), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("find a place for the root: %w", err)
	}
	if err := attach(stageRoot, at); err != nil {
		return fmt.Errorf("attach the root: %w", err)
	}
	if err := errors.Join(unix.Close(at), unix.Fchdir(stageRoot)); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	// As in system.Enter.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot into the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the agent's root: %w", err)
	}
	return unix.Chdir("/")
}

// containerDevices are what every container has, with the numbers of the kernel's admin-guide/devices.txt.
var containerDevices = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// makeDevices makes them on a file system of their own and returns a mount of each: all that the container can write to has
// no devices, so that it reaches no disk and no port by one that it makes itself.
func (s *ContainerSetup) makeDevices() (mounts []int, err error) {
	dir := filepath.Join(s.Place, "dev")
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=0755,size=64k"); err != nil {
		return nil, err
	}
	for _, d := range containerDevices {
		file := filepath.Join(dir, d.name)
		if err := errors.Join(unix.Mknod(file, unix.S_IFCHR, int(unix.Mkdev(d.major, d.minor))), unix.Chmod(file, 0o666)); err != nil {
			return nil, err
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, file, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, fd)
	}
	return mounts, nil
}

// mountDev mounts /dev, with devices and terminals.
func mountDev(devices []int) error {
	dev, err := newMount("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, [2]string{"mode", "0755"}, [2]string{"size", "64m"})
	if err != nil {
		return err
	}
	if err := attachOwn(dev, "/dev"); err != nil {
		return err
	}
	for i, d := range containerDevices {
		if err := attachFile(devices[i], "/dev/"+d.name); err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	for name, to := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return err
		}
	}
	return attachOwn(stagePTS, "/dev/pts")
}

// attachOwn mounts a file system of the kernel's own. A link on the way would put it elsewhere, and its usual path would be
// the image's: such an image is refused.
func attachOwn(mount int, target string) error {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS}
	at, err := unix.Openat2(unix.AT_FDCWD, target, how)
	if errors.Is(err, unix.ENOENT) {
		if err := os.MkdirAll(target, 0o755); err != nil { //nolint:gosec // as other tools make mount points
			return err
		}
		at, err = unix.Openat2(unix.AT_FDCWD, target, how)
	}
	if errors.Is(err, unix.ELOOP) {
		return errors.New("the path is a link, or leads over one, in the container's root")
	}
	if err != nil {
		return err
	}
	return errors.Join(attach(mount, at), unix.Close(at), unix.Close(mount))
}

// attachFile mounts a file.
func attachFile(mount int, target string) error {
	target, err := resolve(target)
	if err != nil {
		return err
	}
	if err := makeDirs(path.Dir(target)); err != nil {
		return err
	}
	at, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		var made int
		if made, err = unix.Open(target, unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644); err == nil {
			_ = unix.Close(made) // nothing was written
			at, err = unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(attach(mount, at), unix.Close(at), unix.Close(mount))
}

// apply makes one mount.
func (m *ContainerMount) apply() error {
	switch {
	case m.Type == "devpts", m.Type == "tmpfs" && path.Clean(m.Target) == "/dev":
		return nil // it is there
	case m.Type == "bind" && m.File:
		return attachFile(stageBinds+m.Bind, m.Target)
	case m.Type == "bind":
		return attachDir(stageBinds+m.Bind, m.Target)
	}
	kind := m.Type
	var options [][2]string
	switch kind {
	case "cgroup":
		kind = "cgroup2"
	case "tmpfs":
		mode := m.Mode & 0o7777
		if mode == 0 {
			mode = 0o1777
		}
		options = append(options, [2]string{"mode", strconv.FormatUint(uint64(mode), 8)})
		if m.Size > 0 {
			options = append(options, [2]string{"size", strconv.FormatInt(m.Size, 10)})
		}
	}
	fd, err := newMount(kind, m.Attributes, options...)
	if err != nil {
		return err
	}
	if kind == "tmpfs" {
		return attachDir(fd, m.Target)
	}
	return attachOwn(fd, m.Target)
}

// attachDir mounts a directory. Links lead somewhere inside the root.
func attachDir(mount int, target string) error {
	target, err := resolve(target) // which is what makeDirs makes: to the kernel, "x/.." needs an x
	if err != nil {
		return err
	}
	if err := makeDirs(target); err != nil {
		return err
	}
	at, err := unix.Open(target, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(attach(mount, at), unix.Close(at), unix.Close(mount))
}

// makeDirs makes what is missing of a directory's path, also behind links that lead to nothing.
func makeDirs(dir string) error {
	dir, err := resolve(dir)
	if err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755) //nolint:gosec // as other tools make mount points
}

// resolve is a path without the links in it. What is missing may be.
func resolve(name string) (string, error) {
	const maxLinks = 255 // of other container tools
	rest, done := path.Clean(name), "/"
	for links := 0; rest != ""; {
		var element string
		element, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		if element == "" {
			continue
		}
		next := path.Join(done, element)
		to, err := os.Readlink(next)
		if err != nil { // no link, or not there
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", unix.ELOOP
		}
		if path.IsAbs(to) {
			done = "/"
		}
		rest = to + "/" + rest
	}
	return done, nil
}

// setSysctls writes them where the mounts have put the kernel's files.
func (s *ContainerSetup) setSysctls() error {
	for name, value := range s.Sysctls {
		file, err := sysctlPath(name)
		if err != nil {
			return err
		}
		f, err := os.OpenFile("/proc/sys/"+file, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("sysctl %.80q: %w", name, err)
		}
		var st unix.Statfs_t
		if err = unix.Fstatfs(int(f.Fd()), &st); err == nil && st.Type != unix.PROC_SUPER_MAGIC {
			err = errors.New("the container has no /proc")
		}
		if err == nil {
			_, err = f.WriteString(value)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("sysctl %.80q: %w", name, err)
		}
	}
	return nil
}

// protect makes what is at a path read-only; nothing need be there.
func protect(name string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, name, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return unlessMissing(err)
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return err
	}
	return over(fd, name)
}

// mask covers what is at a path; nothing need be there.
func mask(name string) error {
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return unlessMissing(err)
	}
	var fd int
	var err error
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		fd, err = newMount("tmpfs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, [2]string{"size", "4k"})
	} else {
		fd, err = unix.OpenTree(unix.AT_FDCWD, "/dev/null", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	}
	if err != nil {
		return err
	}
	return over(fd, name)
}

func over(mount int, name string) error {
	at, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(attach(mount, at), unix.Close(at), unix.Close(mount))
}

func unlessMissing(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}
