package diskstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

const (
	// chunkBytes is what a disk is cut into: smaller chunks share more and cost a file each.
	chunkBytes = 1 << 20

	// maxDiskBytes is the largest disk that image.CreateUpper makes, and maxChunks what of it a snapshot may hold: 1 TiB.
	maxDiskBytes = 16 << 40
	maxChunks    = 1 << 20
)

// chunkRef is a part of a disk: the one with that number, from 0.
type chunkRef struct {
	at  int64
	sum [sha256.Size]byte
}

func (c chunkRef) name() string { return hex.EncodeToString(c.sum[:]) }

// List is what a disk consists of. Chunks are in the order of their place; one that is missing is all zeros.
type List struct {
	Size   int64
	chunks []chunkRef
}

// length is that of the chunk with that number: the last one may be shorter.
func (l *List) length(at int64) int64 { return min(chunkBytes, l.Size-at*chunkBytes) }

// Bytes is what the chunks hold together.
func (l *List) Bytes() (sum int64) {
	for _, c := range l.chunks {
		sum += l.length(c.at)
	}
	return sum
}

// encode is the list as text: the size, then a line for each chunk.
func (l *List) encode() []byte {
	b := make([]byte, 0, 32+len(l.chunks)*(2*sha256.Size+12))
	b = append(strconv.AppendInt(append(b, "size "...), l.Size, 10), '\n')
	for _, c := range l.chunks {
		b = append(strconv.AppendInt(b, c.at, 10), ' ')
		b = append(hex.AppendEncode(b, c.sum[:]), '\n')
	}
	return b
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var errList = errors.New("the list of its chunks is malformed")

// parseList reads what encode writes, and nothing else.
func parseList(b []byte) (*List, error) {
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
		c := chunkRef{}
		var decoded int
		c.at, err = strconv.ParseInt(string(at), 10, 64)
		if err == nil && len(sum) == 2*sha256.Size {
			decoded, err = hex.Decode(c.sum[:], sum)
		}
		if err != nil || decoded != sha256.Size || c.at <= last || c.at > (n-1)/chunkBytes || len(l.chunks) == maxChunks {
			return nil, fmt.Errorf("%w: line %d is not the next of at most %d chunks", errList, line, maxChunks)
		}
		last = c.at
		l.chunks = append(l.chunks, c)
	}
	if !bytes.Equal(l.encode(), b) { // signs, zeros in front, capitals, a last line without its end
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
	x, y := a.chunks, b.chunks
	for len(x) > 0 || len(y) > 0 {
		var at int64
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].at < y[0].at:
			at, x = x[0].at, x[1:]
		case len(x) == 0 || y[0].at < x[0].at:
			at, y = y[0].at, y[1:]
		default:
			at = x[0].at
			same := x[0].sum == y[0].sum
			x, y = x[1:], y[1:]
			if same {
				continue
			}
		}
		if start := at * chunkBytes; start < short {
			add(start, min(start+chunkBytes, short))
		}
	}
	add(short, max(a.Size, b.Size))
	return ranges
}
