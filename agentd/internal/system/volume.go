//go:build linux

package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Volume is a disk with an ext4 file system that stays, for the workload.
type Volume struct {
	Disk     Disk
	Path     string
	ReadOnly bool
}

// volumesDir is where volumes are mounted for agentd itself, by number.
const volumesDir = "/run/msb/volumes"

// Volumes are file systems that are open and not mounted for the workload yet.
type Volumes struct {
	list  []Volume
	trees []int
}

// OpenVolumes mounts the volumes for agentd, so that it can write them back when
// it leaves. warn gets one that was not closed in order.
func OpenVolumes(ctx context.Context, list []Volume, warn func(error)) (*Volumes, error) {
	v := &Volumes{list: list}
	for i := range list {
		tree, err := list[i].open(ctx, filepath.Join(volumesDir, strconv.Itoa(i)), warn)
		if err != nil {
			return nil, errors.Join(err, v.close())
		}
		v.trees = append(v.trees, tree)
	}
	return v, nil
}

// open mounts one at dir and returns a copy of that mount, which has no place yet.
func (v *Volume) open(ctx context.Context, dir string, warn func(error)) (tree int, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return -1, fmt.Errorf("make room for a volume: %w", err)
	}
	dev, err := v.Disk.Find(ctx)
	if err != nil {
		return -1, err
	}
	flags, options := sharedMount(v.ReadOnly)
	err = unix.Mount(dev, dir, "ext4", flags, options)
	if err != nil && v.ReadOnly {
		// Its last writer was killed: what its journal holds can't be written back here.
		if again := unix.Mount(dev, dir, "ext4", flags, "noload"); again == nil {
			warn(fmt.Errorf("the volume at %s was not closed in order: the last writes may be missing until a sandbox has it for writing again", v.Path))
			err = nil
		}
	}
	if err != nil {
		return -1, fmt.Errorf("mount the volume at %s from %s (it must hold an ext4 file system): %w", v.Path, v.Disk, err)
	}
	tree, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("open the volume at %s: %w", v.Path, err)
	}
	return tree, nil
}

// sharedMount is how disks are mounted that other sandboxes have too: no device and no set-user-ID program comes from
// them. discard is as for the upper layer.
func sharedMount(readOnly bool) (flags uintptr, options string) {
	flags = unix.MS_NOATIME | unix.MS_NODEV | unix.MS_NOSUID
	if readOnly {
		return flags | unix.MS_RDONLY, ""
	}
	return flags, "discard"
}

// Mount mounts them for the workload. The calling thread has entered the root, so
// that a link in a path leads nowhere else.
func (v *Volumes) Mount() (err error) {
	for i, tree := range v.trees {
		at := v.list[i].Path
		if err = os.MkdirAll(at, 0o755); err != nil { //nolint:gosec // as other tools make mount points
			err = fmt.Errorf("make room for a volume: %w", err)
			break
		}
		if err = unix.MoveMount(tree, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			err = fmt.Errorf("mount a volume at %s: %w", at, err)
			break
		}
	}
	return errors.Join(err, v.close())
}

func (v *Volumes) close() error {
	errs := make([]error, 0, len(v.trees))
	for _, tree := range v.trees {
		errs = append(errs, unix.Close(tree))
	}
	v.trees = nil
	return errors.Join(errs...)
}

// settleVolumes empties the journals of volumes, which passes their discards on too: who
// attaches a volume for reading only can't do so, and would miss what is in them.
func settleVolumes() {
	dirs, _ := filepath.Glob(filepath.Join(volumesDir, "*")) // a constant pattern
	for _, dir := range dirs {
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		_ = unix.IoctlSetInt(fd, fifreeze, 0) // one that is mounted for reading has no such command
		_ = unix.Close(fd)
	}
}
