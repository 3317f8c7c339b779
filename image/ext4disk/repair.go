package ext4disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Offsets on the disk, from Documentation/filesystems/ext4 of Linux.
const (
	superblockOffset = 1024
	sbInodesCount    = 0x00
	sbInodesPerGroup = 0x28
	sbMagicOffset    = 0x38
	sbMagic          = 0xef53
	descriptorSize   = 32
	gdInodeBitmap    = 0x04
	gdInodeTable     = 0x08
	inodeBytes       = 256
)

// repair puts right what tar2ext4 leaves wrong in a disk that it has just written.
func repair(f *os.File) error {
	var sb [1024]byte
	if _, err := f.ReadAt(sb[:], superblockOffset); err != nil {
		return fmt.Errorf("read back the superblock: %w", err)
	}
	perGroup := binary.LittleEndian.Uint32(sb[sbInodesPerGroup:])
	inodes := binary.LittleEndian.Uint32(sb[sbInodesCount:])
	if perGroup == 0 || perGroup%8 != 0 || perGroup > 8*blockSize {
		return errors.New("read back the superblock: it makes no sense")
	}
	var desc [descriptorSize]byte
	for g := range inodes / perGroup {
		if _, err := f.ReadAt(desc[:], blockSize+int64(g)*descriptorSize); err != nil {
			return fmt.Errorf("read back group %d: %w", g, err)
		}
		bitmap := int64(binary.LittleEndian.Uint32(desc[gdInodeBitmap:])) * blockSize
		if err := padInodeBitmap(f, bitmap, perGroup); err != nil {
			return err
		}
		table := int64(binary.LittleEndian.Uint32(desc[gdInodeTable:])) * blockSize
		if err := sortXattrsOfInodes(f, io.NewSectionReader(f, table, int64(perGroup)*inodeBytes)); err != nil {
			return err
		}
	}
	return nil
}

// padInodeBitmap marks the bits of inodes that do not exist: compactext4 leaves
// them clear, and e2fsck calls that an error.
func padInodeBitmap(f *os.File, at int64, perGroup uint32) error {
	pad := make([]byte, blockSize-perGroup/8)
	for i := range pad {
		pad[i] = 0xff
	}
	if _, err := f.WriteAt(pad, at+int64(perGroup/8)); err != nil {
		return fmt.Errorf("pad an inode bitmap: %w", err)
	}
	return nil
}
