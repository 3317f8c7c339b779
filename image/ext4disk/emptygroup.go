package ext4disk

import "encoding/binary"

// Flags of a group descriptor: what is not written yet, and that zeros in the
// inode table may be trusted (the file is new, so that its holes are zeros).
const (
	groupInodeUninit = 1
	groupBlockUninit = 2
	groupInodeZeroed = 4
)

// group writes the bitmaps of group g where they say something, and fills desc.
func (d *emptyDisk) group(g uint32, desc []byte) error {
	le := binary.LittleEndian
	used := d.usedIn(g)
	le.PutUint32(desc[0x00:], d.blockBitmaps+g)
	le.PutUint32(desc[0x04:], d.inodeBitmaps+g)
	le.PutUint32(desc[0x08:], d.tables+g*tableBlocks)
	le.PutUint16(desc[0x0c:], uint16(d.blocksIn(g)-used))
	free, unused, flags := uint16(inodesPerGroup), uint16(inodesPerGroup), uint16(groupInodeZeroed)
	if g == 0 {
		free -= firstInode - 1
		unused = free
		le.PutUint16(desc[0x10:], 1) // directories: the root
		if err := d.put(d.inodeBitmaps, bitmap(firstInode-1, inodesPerGroup)); err != nil {
			return err
		}
	} else {
		flags |= groupInodeUninit
	}
	// The last group's bitmap is written too: what is past its end is marked in it.
	if used > 0 || g == d.groups-1 {
		if err := d.put(d.blockBitmaps+g, bitmap(used, d.blocksIn(g))); err != nil {
			return err
		}
	} else {
		flags |= groupBlockUninit
	}
	le.PutUint16(desc[0x0e:], free)
	le.PutUint16(desc[0x12:], flags)
	le.PutUint16(desc[0x1c:], unused)
	le.PutUint16(desc[0x1e:], d.groupChecksum(g, desc))
	return nil
}

// bitmap marks the first used bits, and those from end on, which do not exist.
func bitmap(used, end uint32) []byte {
	b := make([]byte, blockSize)
	for i := range used {
		b[i/8] |= 1 << (i % 8)
	}
	for i := end; i < blockSize*8; i++ {
		b[i/8] |= 1 << (i % 8)
	}
	return b
}

// groupChecksum is that of the gdt_csum feature: CRC-16 over the file system's
// UUID, the group's number and the descriptor up to the checksum.
func (d *emptyDisk) groupChecksum(g uint32, desc []byte) uint16 {
	crc := crc16(0xffff, d.uuid[:])
	crc = crc16(crc, binary.LittleEndian.AppendUint32(nil, g))
	return crc16(crc, desc[:0x1e])
}

// crc16 is CRC-16/ARC, polynomial 0x8005 reflected, as in Linux's lib/crc16.
func crc16(crc uint16, b []byte) uint16 {
	for _, c := range b {
		crc ^= uint16(c)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0xa001
			} else {
				crc >>= 1
			}
		}
	}
	return crc
}

// Features: no resize inode and no backups of the superblock (sparse_super2 with
// none named), since a damaged writable layer is thrown away, not repaired.
const (
	compatFeatures   = 0x4 | 0x8 | 0x20 | 0x200       // has_journal, ext_attr, dir_index, sparse_super2
	incompatFeatures = 0x2 | 0x40 | 0x200             // filetype, extents, flex_bg
	roCompatFeatures = 0x2 | 0x8 | 0x10 | 0x20 | 0x40 // large_file, huge_file, gdt_csum, dir_nlink, extra_isize
	mountOptions     = 0x4 | 0x8                      // user_xattr, acl
	errorsRemountRO  = 2
)

func (d *emptyDisk) superblock() []byte {
	b := make([]byte, 1024)
	inodes := d.groups * inodesPerGroup
	for at, v := range map[int]uint32{
		0x00:  inodes,
		0x04:  d.blocks,
		0x0c:  d.blocks - d.used,
		0x10:  inodes - (firstInode - 1),
		0x18:  2, // block size 2^(10+2)
		0x1c:  2, // cluster size, the same
		0x20:  blocksPerGroup,
		0x24:  blocksPerGroup,
		0x28:  inodesPerGroup,
		0x30:  d.now, // last written
		0x40:  d.now, // last checked
		0x4c:  1,     // dynamic revision
		0x54:  firstInode,
		0x5c:  compatFeatures,
		0x60:  incompatFeatures,
		0x64:  roCompatFeatures,
		0xe0:  journalInode,
		0x100: mountOptions,
		0x108: d.now, // made
		0x160: 2,     // directory hashes of unsigned characters
	} {
		binary.LittleEndian.PutUint32(b[at:], v)
	}
	for at, v := range map[int]uint16{
		0x36:  0xffff, // no check after a number of mounts
		0x38:  sbMagic,
		0x3a:  1, // clean
		0x3c:  errorsRemountRO,
		0x58:  inodeBytes,
		0x15c: 32, // extra inode size, least and wanted
		0x15e: 32,
	} {
		binary.LittleEndian.PutUint16(b[at:], v)
	}
	b[0xfc] = 1  // half-MD4 directory hashes
	b[0x174] = 4 // 16 groups to a flexible one
	copy(b[0x68:], d.uuid[:])
	copy(b[0x78:], "msb-upper")
	copy(b[0xec:], d.seed[:])
	return b
}
