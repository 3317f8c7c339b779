package ext4disk

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// errSize means that an empty disk can't have the wanted size.
var errSize = errors.New("unsupported disk size")

const (
	// minEmptyBytes leaves room for a journal and something to write.
	minEmptyBytes = 16 << 20
	// maxEmptyBytes is the bound of 32-bit block numbers, less one group.
	maxEmptyBytes = 15 << 40

	blocksPerGroup = 8 * blockSize
	// inodesPerGroup gives one inode for 16 KiB, mke2fs's default.
	inodesPerGroup   = 8192
	tableBlocks      = inodesPerGroup * inodeBytes / blockSize
	rootInode        = 2
	journalInode     = 8
	firstInode       = 11
	minJournalBlocks = 1024
	maxJournalBlocks = 16384
)

// layout says where everything of an empty disk is, in blocks.
type layout struct {
	blocks, groups, descBlocks uint32
	// blockBitmaps, inodeBitmaps and tables start the metadata of group 0; those
	// of the other groups follow, all in one run (flex_bg allows any place).
	blockBitmaps, inodeBitmaps, tables uint32
	journal, journalBlocks             uint32
	rootDir, used                      uint32
}

func newLayout(size int64) (layout, error) {
	if size < minEmptyBytes || size > maxEmptyBytes {
		return layout{}, fmt.Errorf("%w: %d bytes; choose from %dM to %dT", errSize, size, minEmptyBytes>>20, maxEmptyBytes>>40)
	}
	l := layout{blocks: uint32(size / blockSize)}
	l.groups = (l.blocks + blocksPerGroup - 1) / blocksPerGroup
	l.descBlocks = (l.groups*descriptorSize + blockSize - 1) / blockSize
	l.blockBitmaps = 1 + l.descBlocks
	l.inodeBitmaps = l.blockBitmaps + l.groups
	l.tables = l.inodeBitmaps + l.groups
	l.journal = l.tables + l.groups*tableBlocks
	l.journalBlocks = min(max(l.blocks/64, minJournalBlocks), maxJournalBlocks)
	l.rootDir = l.journal + l.journalBlocks
	l.used = l.rootDir + 1
	return l, nil
}

// blocksIn is how many blocks group g has; the last one may be short.
func (l layout) blocksIn(g uint32) uint32 {
	return min(blocksPerGroup, l.blocks-g*blocksPerGroup)
}

// usedIn is how many blocks at the start of group g are in use.
func (l layout) usedIn(g uint32) uint32 {
	if l.used <= g*blocksPerGroup {
		return 0
	}
	return min(l.used-g*blocksPerGroup, l.blocksIn(g))
}

// emptyDisk writes the blocks that are not zero.
type emptyDisk struct {
	layout
	w    io.WriterAt
	uuid [16]byte
	seed [16]byte
	now  uint32
}

// CreateEmpty makes a sparse file with an empty ext4 file system of size bytes:
// one root directory, owned by root, without lost+found; with a journal, so that a
// killed machine loses nothing that was synced. Inode tables and bitmaps that are
// not used yet stay holes. The path must not exist; after an error it does not.
func CreateEmpty(path string, size int64) (err error) {
	l, err := newLayout(size)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("make a writable disk: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	if err := f.Truncate(int64(l.blocks) * blockSize); err != nil {
		return fmt.Errorf("make a writable disk: %w", err)
	}
	d := &emptyDisk{layout: l, w: f, now: uint32(time.Now().Unix())}
	_, _ = rand.Read(d.uuid[:])
	_, _ = rand.Read(d.seed[:])
	d.uuid[6], d.uuid[8] = d.uuid[6]&0x0f|0x40, d.uuid[8]&0x3f|0x80 // RFC 9562, version 4
	if err := d.write(); err != nil {
		return fmt.Errorf("make a writable disk: %w", err)
	}
	return nil
}

func (d *emptyDisk) write() error {
	descs := make([]byte, d.descBlocks*blockSize)
	for g := range d.groups {
		if err := d.group(g, descs[g*descriptorSize:(g+1)*descriptorSize]); err != nil {
			return err
		}
	}
	return errors.Join(
		d.put(1, descs),
		d.inodes(),
		d.put(d.journal, d.journalSuperblock()),
		d.put(d.rootDir, d.rootBlock()),
		d.putAt(superblockOffset, d.superblock()),
	)
}

func (d *emptyDisk) put(block uint32, b []byte) error { return d.putAt(int64(block)*blockSize, b) }

func (d *emptyDisk) putAt(at int64, b []byte) error {
	_, err := d.w.WriteAt(b, at)
	return err
}

// rootBlock is one block with "." and "..".
func (d *emptyDisk) rootBlock() []byte {
	b := make([]byte, blockSize)
	const fileTypeDir = 2
	binary.LittleEndian.PutUint32(b[0:], rootInode)
	binary.LittleEndian.PutUint16(b[4:], 12)
	b[6], b[7], b[8] = 1, fileTypeDir, '.'
	binary.LittleEndian.PutUint32(b[12:], rootInode)
	binary.LittleEndian.PutUint16(b[16:], blockSize-12)
	b[18], b[19], b[20], b[21] = 2, fileTypeDir, '.', '.'
	return b
}

// journalSuperblock is an empty JBD2 journal, version 2, big-endian.
func (d *emptyDisk) journalSuperblock() []byte {
	b := make([]byte, blockSize)
	for at, v := range map[int]uint32{
		0x00: 0xc03b3998,      // magic
		0x04: 4,               // a superblock, version 2
		0x0c: blockSize,       // block size
		0x10: d.journalBlocks, // blocks
		0x14: 1,               // first log block
		0x18: 1,               // first commit expected; start 0 says that it is empty
		0x40: 1,               // users
	} {
		binary.BigEndian.PutUint32(b[at:], v)
	}
	copy(b[0x30:], d.uuid[:])
	return b
}

func (d *emptyDisk) inodes() error {
	root := d.inode(0o040755, 2, blockSize, d.rootDir, 1)
	journal := d.inode(0o100600, 1, int64(d.journalBlocks)*blockSize, d.journal, d.journalBlocks)
	return errors.Join(
		d.putAt(int64(d.tables)*blockSize+(rootInode-1)*inodeBytes, root),
		d.putAt(int64(d.tables)*blockSize+(journalInode-1)*inodeBytes, journal),
	)
}

// inode is one with a single extent.
func (d *emptyDisk) inode(mode, links uint16, size int64, start, blocks uint32) []byte {
	const (
		flagExtents = 0x80000
		extraSize   = 32
	)
	b := make([]byte, inodeBytes)
	le := binary.LittleEndian
	le.PutUint16(b[0x00:], mode)
	le.PutUint32(b[0x04:], uint32(size&0xffffffff))
	for _, at := range []int{0x08, 0x0c, 0x10, 0x90} {
		le.PutUint32(b[at:], d.now)
	}
	le.PutUint16(b[0x1a:], links)
	le.PutUint32(b[0x1c:], blocks*(blockSize/512))
	le.PutUint32(b[0x20:], flagExtents)
	le.PutUint32(b[0x6c:], uint32(size>>32))
	le.PutUint16(b[0x80:], extraSize)
	// The extent tree: a header with one leaf of at most four, and the leaf.
	le.PutUint16(b[0x28:], 0xf30a)
	le.PutUint16(b[0x2a:], 1)
	le.PutUint16(b[0x2c:], 4)
	le.PutUint16(b[0x38:], uint16(blocks))
	le.PutUint32(b[0x3c:], start)
	return b
}
