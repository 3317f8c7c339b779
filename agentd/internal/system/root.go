//go:build linux

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// errDamaged means that the disk for writes can't be used as it is.
var errDamaged = errors.New("the sandbox's disk is damaged")

// Root says what the workload's root is made of.
type Root struct {
	Image Disk
	// Upper is an ext4 disk for writes; nil means memory.
	Upper *Disk
	// UpperBytes bounds the upper layer in memory; 0 means half of it.
	UpperBytes int64
	// Tmpfs are mounted in this order, MakeDirs made where they are missing.
	Tmpfs    []Tmpfs
	MakeDirs []string
	// Volumes are for OpenVolumes, Caches, CacheDisk and CacheUser for OpenCaches.
	Volumes   []Volume
	Caches    []Cache
	CacheDisk *Disk
	CacheUser string
	// ReadOnly is for Seal.
	ReadOnly bool
}

// Tmpfs is a file system in memory, for the workload.
type Tmpfs struct {
	Path string
	// Size in bytes; 0 means half of the memory.
	Size int64
	// Mode is nil for that of the directory below, 01777 where there is none.
	Mode *uint32
	// Exec lets programs in it run.
	Exec bool
}

// RootDir is where agentd itself has the workload's root, without what is mounted
// in it for the workload.
const RootDir = "/run/msb/root"

// The layers, below agentd's own /run, which no workload sees.
const (
	imageDir = "/run/msb/image"
	upperDir = "/run/msb/upper"
	rootDir  = RootDir

	upperFiles = "data" // in upperDir
)

// Assemble mounts image, upper layer and overlay in agentd's mount namespace.
func (r Root) Assemble(ctx context.Context) error {
	for _, d := range []string{imageDir, upperDir, rootDir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make room for the root: %w", err)
		}
	}
	dev, err := r.Image.Find(ctx)
	if err != nil {
		return err
	}
	if err := unix.Mount(dev, imageDir, "ext4", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the image from %s: %w", r.Image, err)
	}
	if err := r.mountUpper(ctx); err != nil {
		return err
	}
	data, work := filepath.Join(upperDir, upperFiles), filepath.Join(upperDir, "work")
	for _, d := range []string{data, work} {
		if err := os.MkdirAll(d, 0o755); err != nil { //nolint:gosec // what a root directory has
			return fmt.Errorf("make the upper layer: %w", err)
		}
	}
	if err := copyRootMode(imageDir, data); err != nil {
		return err
	}
	opts := "lowerdir=" + imageDir + ",upperdir=" + data + ",workdir=" + work
	if err := unix.Mount("overlay", rootDir, "overlay", 0, opts); err != nil {
		return fmt.Errorf("mount the overlay: %w", err)
	}
	return checkUpper()
}

// UpperFiles is the directory of what was written since the image.
func UpperFiles() (*os.Root, error) {
	root, err := os.OpenRoot(filepath.Join(upperDir, upperFiles))
	if err != nil {
		return nil, fmt.Errorf("look into the upper layer: %w", err)
	}
	return root, nil
}

// checkUpper makes sure that the upper layer can be written to. To mount an overlay empties its work directory: a kernel
// that finds damage there shuts the file system for writes, which statfs(2) doesn't tell. A full disk is not damaged: the
// workload can remove something.
func checkUpper() error {
	probe, err := os.MkdirTemp(upperDir, "probe")
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil && !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: the kernel found errors in its file system and lets nothing be written to it (%w); on the host, e2fsck -fy upper.ext4 in the sandbox's directory repairs most", errDamaged, err)
	}
	return nil
}

func (r Root) mountUpper(ctx context.Context) error {
	if r.Upper == nil {
		opts := "mode=0755"
		if r.UpperBytes > 0 {
			opts += fmt.Sprintf(",size=%d", r.UpperBytes)
		}
		if err := unix.Mount("tmpfs", upperDir, "tmpfs", 0, opts); err != nil {
			return fmt.Errorf("mount the upper layer in memory: %w", err)
		}
		return nil
	}
	dev, err := r.Upper.Find(ctx)
	if err != nil {
		return err
	}
	// discard: what the workload deletes takes no space on the host. A disk that
	// has no such command is mounted just the same.
	if err := unix.Mount(dev, upperDir, "ext4", unix.MS_NOATIME, "discard"); err != nil {
		return fmt.Errorf("mount the upper layer from %s (it must hold an ext4 file system): %w", r.Upper, err)
	}
	return nil
}

// copyRootMode gives the merged root the owner and mode of the image's: an
// overlay shows those of its upper layer.
func copyRootMode(image, upper string) error {
	var st unix.Stat_t
	if err := unix.Stat(image, &st); err != nil {
		return fmt.Errorf("look at the image's root: %w", err)
	}
	if err := unix.Chown(upper, int(st.Uid), int(st.Gid)); err != nil {
		return fmt.Errorf("own the upper layer: %w", err)
	}
	if err := unix.Chmod(upper, st.Mode&0o7777); err != nil {
		return fmt.Errorf("set the mode of the upper layer: %w", err)
	}
	return nil
}

// Enter moves the calling thread into the assembled root, in a mount namespace
// of its own. It is a whole root there, not a chroot: programs that make user
// namespaces work, and agentd's own root is out of reach by any path.
func Enter() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("separate the mounts: %w", err)
	}
	if err := mountInside(rootDir); err != nil {
		return err
	}
	if err := unix.Chdir(rootDir); err != nil {
		return fmt.Errorf("enter the root: %w", err)
	}
	// pivot_root(2), "pivot_root(".", ".")": the old root ends up on top of
	// the new one and is unmounted from there.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot into the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("let go of the agent's root: %w", err)
	}
	return unix.Chdir("/")
}

// MountTmpfs mounts those of r. The calling thread has entered the root, so that
// a link in a path leads nowhere else.
func (r Root) MountTmpfs() error {
	for _, t := range r.Tmpfs {
		options := "mode=1777"
		var st unix.Stat_t
		if err := unix.Stat(t.Path, &st); err == nil {
			options = fmt.Sprintf("mode=%o,uid=%d,gid=%d", st.Mode&0o7777, st.Uid, st.Gid)
		} else if err := os.MkdirAll(t.Path, 0o755); err != nil { //nolint:gosec // as other tools make mount points
			return fmt.Errorf("make room for a tmpfs: %w", err)
		}
		if t.Mode != nil {
			options += fmt.Sprintf(",mode=%o", *t.Mode&0o7777)
		}
		if t.Size > 0 {
			options += fmt.Sprintf(",size=%d", t.Size)
		}
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
		if !t.Exec {
			flags |= unix.MS_NOEXEC
		}
		if err := unix.Mount("tmpfs", t.Path, "tmpfs", flags, options); err != nil {
			return fmt.Errorf("mount a tmpfs at %s: %w", t.Path, err)
		}
	}
	return nil
}

// Seal makes MakeDirs, and then the root read-only if it is to be. File systems
// that are mounted in it stay as they are.
func (r Root) Seal() error {
	for _, d := range r.MakeDirs {
		if err := os.MkdirAll(d, 0o755); err != nil { //nolint:gosec // as other tools make mount points
			return fmt.Errorf("make a directory: %w", err)
		}
	}
	if !r.ReadOnly {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("make the root read-only: %w", err)
	}
	return nil
}

// mountInside mounts what the workload sees besides its image. Whatever the
// image has at those names is covered.
func mountInside(root string) error {
	for _, m := range []mount{
		{"proc", "proc", "proc", noPrograms, ""},
		{"sysfs", "sys", "sysfs", noPrograms, ""},
		{"cgroup2", "sys/fs/cgroup", "cgroup2", noPrograms, ""},
		{"tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=0755,size=1m"},
	} {
		target := filepath.Join(root, m.target)
		if m.kind != "cgroup2" {
			if err := ownDirectory(target, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount(m.source, target, m.kind, m.flags, m.data); err != nil && m.kind != "cgroup2" {
			return fmt.Errorf("mount /%s: %w", m.target, err)
		}
	}
	if err := ownDirectory(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := ownDirectory(filepath.Join(root, "run"), 0o755); err != nil {
		return err
	}
	return populateDev(filepath.Join(root, "dev"))
}

// ownDirectory makes sure that path is a directory and no link: we stand outside the
// image's root still, and a link would lead into agentd's.
func ownDirectory(path string, mode os.FileMode) error {
	st, err := os.Lstat(path)
	if err == nil && st.IsDir() {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("clear /%s of the image: %w", filepath.Base(path), err)
	}
	if err := os.Mkdir(path, mode.Perm()); err != nil {
		return fmt.Errorf("make a mount point: %w", err)
	}
	return os.Chmod(path, mode)
}
