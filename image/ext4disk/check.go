package ext4disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// ErrDamaged means that a file is not the disk that was written.
var ErrDamaged = errors.New("disk is damaged")

// Check looks at path cheaply: a regular file of size bytes that starts as an
// ext4 file system does. It finds truncation and overwriting, not flipped bits.
func Check(path string, size int64) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() != size {
		return fmt.Errorf("%w: %s has %d bytes, %d were written", ErrDamaged, path, st.Size(), size)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var magic [2]byte
	if _, err := f.ReadAt(magic[:], superblockOffset+sbMagicOffset); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if binary.LittleEndian.Uint16(magic[:]) != sbMagic {
		return fmt.Errorf("%w: %s is no ext4 file system", ErrDamaged, path)
	}
	return nil
}
