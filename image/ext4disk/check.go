package ext4disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// errDamaged means that a file is not the disk that was written.
var errDamaged = errors.New("disk is damaged")

// minPadded is the least size that Padded returns.
const minPadded = 64 << 20

// Padded is the size of the file that holds a file system of size bytes: the
// next power of two. What follows the file system is a hole.
func Padded(size int64) int64 {
	padded := int64(minPadded)
	for padded < size {
		padded *= 2
	}
	return padded
}

// Check looks at path cheaply: a regular file of size bytes, or of as many as
// Padded says, that starts as an ext4 file system does. It finds truncation and overwriting, not flipped bits.
func Check(path string, size int64) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() || st.Size() != size && st.Size() != Padded(size) {
		return fmt.Errorf("%w: %s has %d bytes, %d were written", errDamaged, path, st.Size(), size)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var magic [2]byte
	if _, err := f.ReadAt(magic[:], superblockOffset+sbMagicOffset); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if binary.LittleEndian.Uint16(magic[:]) != sbMagic {
		return fmt.Errorf("%w: %s is no ext4 file system", errDamaged, path)
	}
	return nil
}

// CheckClosed refuses a file system that was not closed in order: its journal holds what is not in its place yet, or its
// kernel found errors in it. The fields are those of Documentation/filesystems/ext4/super.rst.
func CheckClosed(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var sb [0x64]byte
	if _, err := f.ReadAt(sb[:], superblockOffset); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	const needsRecovery, hasErrors = 0x4, 0x2
	if binary.LittleEndian.Uint16(sb[sbMagicOffset:]) != sbMagic || binary.LittleEndian.Uint32(sb[0x60:])&needsRecovery != 0 || binary.LittleEndian.Uint16(sb[0x3a:])&hasErrors != 0 {
		return fmt.Errorf("%w: the file system in %s was not closed in order", errDamaged, path)
	}
	return nil
}
