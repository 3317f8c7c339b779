package ext4disk

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	inodeFileACL      = 0x68
	xattrMagic        = 0xea020000
	xattrHeaderBytes  = 32
	xattrEntryFixed   = 16
	xattrEntryNameLen = 0
	xattrEntryIndex   = 1
)

// sortXattrsOfInodes orders the entries of every attribute block as the kernel
// expects: by name index, length of name, name. compactext4 sorts with a
// comparison by any of the three, which is no order, and ext4_xattr_block_get
// stops at the first entry that is past the one it looks for. It shows from 13
// attributes on: below, the sort is an insertion sort and its input is ordered.
func sortXattrsOfInodes(f *os.File, table io.Reader) error {
	buf := make([]byte, 64*blockSize)
	for {
		n, err := io.ReadFull(table, buf)
		for off := 0; off+inodeBytes <= n; off += inodeBytes {
			if block := binary.LittleEndian.Uint32(buf[off+inodeFileACL:]); block != 0 {
				if err := sortXattrBlock(f, int64(block)*blockSize); err != nil {
					return err
				}
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return fmt.Errorf("read back inodes: %w", err)
		}
	}
}

func sortXattrBlock(f *os.File, at int64) error {
	var b [blockSize]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return fmt.Errorf("read back attributes: %w", err)
	}
	if binary.LittleEndian.Uint32(b[:]) != xattrMagic {
		return fmt.Errorf("read back attributes: block %d holds none", at/blockSize)
	}
	var entries [][]byte
	end := xattrHeaderBytes
	for end+4 <= len(b) && binary.LittleEndian.Uint32(b[end:]) != 0 {
		size := xattrEntryFixed + (int(b[end+xattrEntryNameLen])+3)&^3
		if end+size > len(b) {
			return fmt.Errorf("read back attributes: block %d is cut", at/blockSize)
		}
		entries = append(entries, bytes.Clone(b[end:end+size]))
		end += size
	}
	if slices.IsSortedFunc(entries, compareXattrs) {
		return nil
	}
	slices.SortFunc(entries, compareXattrs)
	copy(b[xattrHeaderBytes:], bytes.Join(entries, nil))
	if _, err := f.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("sort attributes: %w", err)
	}
	return nil
}

func compareXattrs(a, b []byte) int {
	nameOf := func(e []byte) []byte {
		return e[xattrEntryFixed : xattrEntryFixed+int(e[xattrEntryNameLen])]
	}
	return cmp.Or(
		cmp.Compare(a[xattrEntryIndex], b[xattrEntryIndex]),
		cmp.Compare(a[xattrEntryNameLen], b[xattrEntryNameLen]),
		bytes.Compare(nameOf(a), nameOf(b)),
	)
}
