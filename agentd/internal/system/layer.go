//go:build linux

package system

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Layer holds what the workload writes to a directory whose content comes from
// elsewhere: a directory of the host that is copied on write, or a cache. It lies
// beside the upper layer of the root, on the same disk, where the workload has no
// path to it.
type Layer struct{ data, lower string }

// LayerOf is the layer of the directory of the host that is mounted at path.
func LayerOf(path string) Layer {
	sum := sha256.Sum256([]byte(path))
	key := hex.EncodeToString(sum[:8])
	return Layer{data: filepath.Join(upperDir, "cow", key, "data"), lower: filepath.Join("/run/msb/cow", key)}
}

// Data holds the changed files.
func (l Layer) Data() string { return l.data }

// Lower is where what is below the layer is mounted.
func (l Layer) Lower() string { return l.lower }

// Overlay puts the layer over Lower. The mount is attached nowhere yet.
func (l Layer) Overlay() (mount *os.File, err error) {
	return l.overlay(unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV)
}

func (l Layer) overlay(attributes int) (mount *os.File, err error) {
	work := filepath.Join(filepath.Dir(l.Data()), "work")
	for _, d := range []string{l.Data(), work} {
		if err := os.MkdirAll(d, 0o755); err != nil { //nolint:gosec // as of the root's own layer
			return nil, fmt.Errorf("make the layer: %w", err)
		}
	}
	if err := copyRootMode(l.Lower(), l.Data()); err != nil {
		return nil, err
	}
	return newMount("overlay", attributes,
		[2]string{"lowerdir", l.Lower()}, [2]string{"upperdir", l.Data()}, [2]string{"workdir", work},
		// With these the layer is made of whole files under their own names, and the host may change the directory
		// while it is not mounted (Documentation/filesystems/overlayfs.rst).
		[2]string{"redirect_dir", "nofollow"}, [2]string{"metacopy", "off"}, [2]string{"index", "off"}, [2]string{"xino", "off"})
}

// Attach moves the mount to path as the calling thread sees it.
func Attach(mount *os.File, path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // as other tools make mount points
		return fmt.Errorf("make the mount point: %w", err)
	}
	err := unix.MoveMount(int(mount.Fd()), "", unix.AT_FDCWD, path, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err != nil {
		err = fmt.Errorf("attach the overlay: %w", err)
	}
	return errors.Join(err, mount.Close())
}
