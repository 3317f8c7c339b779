package image

import (
	"path/filepath"

	"github.com/msb-project/msb/image/ext4disk"
)

// CreateUpper makes a sparse, empty, writable ext4 file system of size bytes at
// path, which must not exist. The guest mounts it as the writable layer. It needs
// no root and no tool, and takes milliseconds whatever the size. ErrNoSpace when
// the disk is full; after an error there is no file.
func CreateUpper(path string, size int64) error {
	return spaceError(filepath.Dir(path), ext4disk.CreateEmpty(path, size))
}
