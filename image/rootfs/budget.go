package rootfs

import (
	"fmt"
	"io"
	"sync/atomic"
)

// Budget bounds what the layers of one image cost together. It is shared by the
// goroutines that read them. All fields are exact upper bounds.
type Budget struct {
	// TotalBytes is the sum of file contents; FileBytes is the size of one file.
	TotalBytes, FileBytes int64
	// Entries counts entries, hidden ones included.
	Entries int64
	// MetadataBytes is the sum of names, link targets and extended attributes.
	MetadataBytes int64

	bytes, entries, metadata, stream atomic.Int64
}

// perEntryStreamBytes is the tar overhead that one entry is allowed on average:
// a header, a PAX header with its records, padding. Bytes.
const perEntryStreamBytes = 4 << 10

const (
	// partBytes is what a component of a name takes beside its characters: the header of a string.
	partBytes = 16
	// xattrBytesEach is what an extended attribute takes beside its characters: its place in a map.
	xattrBytesEach = 96
)

func (b *Budget) addEntry(name string, metadata int) error {
	if n := b.entries.Add(1); n > b.Entries {
		return fmt.Errorf("%w: more than %d entries (at %s); raise the limit on entries if the image is trusted",
			ErrLimit, b.Entries, quoteName(name))
	}
	return b.addMetadata(name, metadata)
}

func (b *Budget) addMetadata(name string, size int) error {
	if n := b.metadata.Add(int64(size)); n > b.MetadataBytes {
		return fmt.Errorf("%w: names and attributes take more than %d bytes (at %s)",
			ErrLimit, b.MetadataBytes, quoteName(name))
	}
	return nil
}

func (b *Budget) addFile(name string, size int64) error {
	if size > b.FileBytes {
		return fmt.Errorf("%w: file %s has %d bytes, at most %d are allowed", ErrLimit, quoteName(name), size, b.FileBytes)
	}
	if n := b.bytes.Add(size); n > b.TotalBytes {
		return fmt.Errorf("%w: files take more than %d bytes (at %s); raise the limit on bytes if the image is trusted",
			ErrLimit, b.TotalBytes, quoteName(name))
	}
	return nil
}

// reader bounds a decompressed layer: a tar stream may go on after its end mark,
// and a few kilobytes of gzip can hold gigabytes of such zeros.
func (b *Budget) reader(r io.Reader) io.Reader { return &budgetReader{r: r, b: b} }

type budgetReader struct {
	r io.Reader
	b *Budget
}

func (r *budgetReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	limit := r.b.TotalBytes + r.b.Entries*perEntryStreamBytes
	if r.b.stream.Add(int64(n)) > limit {
		return 0, fmt.Errorf("%w: layers decompress to more than %d bytes", ErrLimit, limit)
	}
	return n, err
}
