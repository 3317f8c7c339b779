//go:build linux

package system

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// containersDir is where containers have places of the agent's own, below its own /run.
const containersDir = "/run/msb/containers"

// ContainerPlace is the place of the container of that number.
func ContainerPlace(number uint64) string {
	return filepath.Join(containersDir, strconv.FormatUint(number, 10))
}

// ContainerLayer is what the container of that number writes to its root.
func ContainerLayer(number uint64) Layer {
	return Layer{
		data:  filepath.Join(upperDir, "containers", strconv.FormatUint(number, 10), upperFiles),
		lower: filepath.Join(ContainerPlace(number), "lower"),
	}
}

// ForgetContainers removes what earlier containers left on the disk when the machine was killed.
func ForgetContainers() error { return os.RemoveAll(filepath.Join(upperDir, "containers")) }

// RemoveContainer removes the files of a container whose mounts have gone.
func RemoveContainer(number uint64) error {
	return errors.Join(os.RemoveAll(filepath.Dir(ContainerLayer(number).data)), os.RemoveAll(ContainerPlace(number)))
}

// ContainerRoot mounts the container's root, attached nowhere: what it writes over what the mount lower has.
func ContainerRoot(number uint64, lower *os.File) (*os.File, error) {
	layer := ContainerLayer(number)
	if err := os.MkdirAll(layer.lower, 0o700); err != nil {
		return nil, fmt.Errorf("make room for the container: %w", err)
	}
	if err := unix.MoveMount(int(lower.Fd()), "", unix.AT_FDCWD, layer.lower, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return nil, fmt.Errorf("attach the container's files: %w", err)
	}
	root, err := layer.overlay(unix.MOUNT_ATTR_NODEV)
	// The overlay has a mount of its own of what is below it.
	return root, errors.Join(err, unix.Unmount(layer.lower, unix.MNT_DETACH))
}

// HostPlace is where the agent mounts what the host serves under that number.
func HostPlace(number uint32) string {
	return filepath.Join("/run/msb/host", strconv.FormatUint(uint64(number), 10))
}

// MountHost mounts it there, a directory or a file; its FUSE messages go through device.
func MountHost(device int, number uint32, file bool) error {
	place, mode := HostPlace(number), unix.S_IFDIR
	err := os.MkdirAll(filepath.Dir(place), 0o700)
	if file {
		mode = unix.S_IFREG
		err = errors.Join(err, os.WriteFile(place, nil, 0o600))
	} else {
		err = errors.Join(err, os.MkdirAll(place, 0o700))
	}
	if err != nil {
		return fmt.Errorf("make room for a directory of the host: %w", err)
	}
	// The kernel checks access by the modes of the host's files.
	options := fmt.Sprintf("fd=%d,rootmode=%o,user_id=0,group_id=0,allow_other,default_permissions", device, mode)
	if err := unix.Mount("host", place, "fuse", unix.MS_NODEV, options); err != nil {
		return errors.Join(fmt.Errorf("mount: %w", err), os.Remove(place))
	}
	return nil
}

// UnmountHost undoes MountHost. Mounts of containers stay.
func UnmountHost(number uint32) error {
	err := unix.Unmount(HostPlace(number), unix.MNT_DETACH)
	return errors.Join(err, os.Remove(HostPlace(number)))
}

// CloneMount makes another mount of what is mounted at path, attached nowhere.
func CloneMount(path string, attributes int) (*os.File, error) {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mount %s once more: %w", path, err)
	}
	defer func() { _ = unix.Close(at) }() // nothing was written to it
	return cloneMount(at, path, attributes)
}

// cloneMount makes another mount of what is open there, attached nowhere.
func cloneMount(at int, path string, attributes int) (*os.File, error) {
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err == nil && attributes != 0 {
		if err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: uint64(attributes)}); err != nil {
			_ = unix.Close(fd) // nobody has seen it
		}
	}
	if err != nil {
		return nil, fmt.Errorf("mount %s once more: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// NewTerminals mounts a devpts of its own, attached nowhere.
func NewTerminals() (*os.File, error) {
	return newMount("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC,
		[2]string{"newinstance"}, [2]string{"ptmxmode", "0666"}, [2]string{"mode", "0620"}, [2]string{"gid", "5"})
}

// newMount makes a file system with options, of which those without a value are flags, and a mount of it.
func newMount(kind string, attributes int, options ...[2]string) (*os.File, error) {
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file system of the kind %s: %w", kind, err)
	}
	defer func() { _ = unix.Close(fs) }() // the mount is made by then
	for _, o := range options {
		if o[1] == "" {
			err = unix.FsconfigSetFlag(fs, o[0])
		} else {
			err = unix.FsconfigSetString(fs, o[0], o[1])
		}
		if err != nil {
			return nil, fmt.Errorf("set up %s of %s: %w", o[0], kind, err)
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return nil, fmt.Errorf("make a file system of the kind %s: %w", kind, err)
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
	if err != nil {
		return nil, fmt.Errorf("mount a file system of the kind %s: %w", kind, err)
	}
	return os.NewFile(uintptr(fd), kind), nil
}
