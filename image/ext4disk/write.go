package ext4disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/Microsoft/hcsshim/ext4/tar2ext4"
)

const (
	// minReserve is the disk size that group descriptors are reserved for at least;
	// 16 GiB take one block. Bytes.
	minReserve = 16 << 30
	// nodeOverhead is an upper bound of what one name costs: an inode, a directory
	// block, an attribute block, and the padding of its last block. Bytes.
	nodeOverhead = 256 + 3*blockSize
	// blockSize is the size of a block of every disk here. Bytes.
	blockSize = 4096
)

// Size is an estimate of what a disk will hold.
type Size struct {
	// Bytes of file contents and number of names.
	Bytes int64
	Names int
}

func (s Size) reserve() int64 {
	return max(minReserve, s.Bytes+s.Bytes/64+int64(s.Names)*nodeOverhead+(64<<20))
}

// Write turns the tar stream that produce writes into a file system in f, which
// must be empty. In the stream parents come first, each name comes once, and hard
// links come after their targets. The disk can only be mounted read-only.
func Write(f *os.File, size Size, produce func(io.Writer) error) error {
	pr, pw := io.Pipe()
	produced := make(chan error, 1)
	go func() {
		err := produce(pw)
		_ = pw.CloseWithError(err)
		produced <- err
	}()
	out := &sparseFile{f: f}
	err := tar2ext4.ConvertTarToExt4(pr, out, tar2ext4.MaximumDiskSize(size.reserve()))
	_ = pr.CloseWithError(errors.New("the disk writer stopped"))
	perr := <-produced
	switch {
	case err != nil && perr != nil && !errors.Is(err, perr) && !errors.Is(perr, io.ErrClosedPipe):
		// The writer stopped first; the producer only saw its pipe close.
		return fmt.Errorf("write the ext4 disk: %w", err)
	case err != nil:
		return fmt.Errorf("write the ext4 disk: %w", err)
	case perr != nil:
		return perr
	}
	if err := out.finish(); err != nil {
		return fmt.Errorf("write the ext4 disk: %w", err)
	}
	return repair(f)
}
