package capture

import "reflect"

const (
	// directUnit is what memory, offset and length of a direct write are multiples of: the logical block
	// of any disk, and a page.
	directUnit = 4096
	// directMin is the size from which a write goes to the disk directly. Less is a quiet guest's.
	directMin = 256 << 10
	// blockPadding is the type of a block that fills the file up to the next unit: of the range that
	// pcapng leaves for local use, so that every reader skips it.
	blockPadding = 0x80000000 | 'm'<<16 | 's'<<8 | 'b'
)

// alignedBuffer returns an empty buffer that a direct write can take, with room for n bytes and for the
// padding behind them.
func alignedBuffer(n int) []byte {
	n = (n+directUnit-1)/directUnit*directUnit + 2*directUnit
	b := make([]byte, n+directUnit)
	at := int(-reflect.ValueOf(b).Pointer() % directUnit)
	return b[at : at : at+n]
}

// aligned reports whether a direct write can begin with b.
func aligned(b []byte) bool {
	return reflect.ValueOf(b).Pointer()%directUnit == 0
}

// padding is how many bytes a block of padding has that ends at a multiple of directUnit, if it begins at
// offset at; 0 if none is needed.
func padding(at int64) int {
	n := int(-at & (directUnit - 1))
	if n > 0 && n < blockOverhead {
		n += directUnit
	}
	return n
}

// padded appends a block of padding of n bytes; at least blockOverhead of them, and a multiple of 4.
func padded(b []byte, n int) []byte {
	if n == 0 {
		return b
	}
	from := len(b)
	b = begin(b, blockPadding)
	b = append(b, make([]byte, n-blockOverhead)...)
	return end(b, from)
}
