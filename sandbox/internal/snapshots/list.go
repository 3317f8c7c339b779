package snapshots

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

const (
	// ChunkBytes is what a disk is cut into: smaller chunks share more and cost a file each.
	ChunkBytes = 1 << 20

	// maxDiskBytes is the largest disk that image.CreateUpper makes, and maxChunks what of it a snapshot may hold: 1 TiB.
	maxDiskBytes = 16 << 40
	maxChunks    = 1 << 20
)

// Chunk is a part of a disk: the one with that number, from 0.
type Chunk struct {
	At  int64
	Sum [sha256.Size]byte
}

func (c Chunk) name() string { return hex.EncodeToString(c.Sum[:]) }

// List is what a disk consists of. Chunks are in the order of their place; one that is missing is all zeros.
type List struct {
	Size   int64
	Chunks []Chunk
}

// length is that of the chunk with that number: the last one may be shorter.
func (l *List) length(at int64) int64 { return min(ChunkBytes, l.Size-at*ChunkBytes) }

// Bytes is what the chunks hold together.
func (l *List) Bytes() (sum int64) {
	for _, c := range l.Chunks {
		sum += l.length(c.At)
	}
	return sum
}

// Encode is the list as text: the size, then a line for each chunk.
func (l *List) Encode() []byte {
	b := make([]byte, 0, 32+len(l.Chunks)*(2*sha256.Size+12))
	b = append(strconv.AppendInt(append(b, "size "...), l.Size, 10), '\n')
	for _, c := range l.Chunks {
		b = append(strconv.AppendInt(b, c.At, 10), ' ')
		b = append(hex.AppendEncode(b, c.Sum[:]), '\n')
	}
	return b
}

// Digest names what the disk holds.
func (l *List) Digest() string { return digestOf(l.Encode()) }

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var errList = errors.New("the list of its chunks is malformed")

// ParseList reads what Encode writes, and nothing else.
func ParseList(b []byte) (*List, error) {
	first, rest, _ := bytes.Cut(b, []byte{'\n'})
	size, ok := bytes.CutPrefix(first, []byte("size "))
	n, err := strconv.ParseInt(string(size), 10, 64)
	if !ok || err != nil || n < 1 || n > maxDiskBytes {
		return nil, fmt.Errorf("%w: line 1 is no size from 1 to %d bytes", errList, int64(maxDiskBytes))
	}
	l := &List{Size: n}
	last := int64(-1)
	for line := 2; len(rest) > 0; line++ {
		var text []byte
		text, rest, _ = bytes.Cut(rest, []byte{'\n'})
		at, sum, _ := bytes.Cut(text, []byte{' '})
		c := Chunk{}
		var decoded int
		c.At, err = strconv.ParseInt(string(at), 10, 64)
		if err == nil && len(sum) == 2*sha256.Size {
			decoded, err = hex.Decode(c.Sum[:], sum)
		}
		if err != nil || decoded != sha256.Size || c.At <= last || c.At > (n-1)/ChunkBytes || len(l.Chunks) == maxChunks {
			return nil, fmt.Errorf("%w: line %d is not the next of at most %d chunks", errList, line, maxChunks)
		}
		last = c.At
		l.Chunks = append(l.Chunks, c)
	}
	if !bytes.Equal(l.Encode(), b) { // signs, zeros in front, capitals, a last line without its end
		return nil, fmt.Errorf("%w: it is not written as msb writes it", errList)
	}
	return l, nil
}

// Range is a part of a disk, in bytes.
type Range struct {
	Start int64 `json:"start"`
	Bytes int64 `json:"bytes"`
}

// Diff are the parts in which two disks differ, to within a chunk. Where one is longer, the rest of it is one.
func Diff(a, b *List) (ranges []Range) {
	add := func(start, end int64) {
		if n := len(ranges); n > 0 && ranges[n-1].Start+ranges[n-1].Bytes == start {
			ranges[n-1].Bytes += end - start
		} else if start < end {
			ranges = append(ranges, Range{start, end - start})
		}
	}
	short := min(a.Size, b.Size)
	x, y := a.Chunks, b.Chunks
	for len(x) > 0 || len(y) > 0 {
		var at int64
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].At < y[0].At:
			at, x = x[0].At, x[1:]
		case len(x) == 0 || y[0].At < x[0].At:
			at, y = y[0].At, y[1:]
		default:
			at = x[0].At
			same := x[0].Sum == y[0].Sum
			x, y = x[1:], y[1:]
			if same {
				continue
			}
		}
		if start := at * ChunkBytes; start < short {
			add(start, min(start+ChunkBytes, short))
		}
	}
	add(short, max(a.Size, b.Size))
	return ranges
}
