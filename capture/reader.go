package capture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

const (
	// maxBlock bounds one block or packet in bytes: the largest frame, its options, and room for
	// another tool's comments. A length above it is a lie or of no use here.
	maxBlock = 16 << 20
	// firstRead is how much is read at once in the beginning, readAhead once the capture turns out to be long:
	// most of a small capture's review was to clear the larger one.
	firstRead = 16 << 10
	readAhead = 1 << 20
	// maxInterfaces bounds the interfaces of one section.
	maxInterfaces = 4096
)

// Errors of a Reader, wrapped by Error.
var (
	// ErrFormat says that the bytes are no capture, or stop being one.
	ErrFormat = errors.New("not a capture")
	// ErrTruncated says that the capture ends in the middle.
	ErrTruncated = errors.New("the capture is cut off")
	// ErrLink says that packets are not Ethernet frames.
	ErrLink = errors.New("the capture's link is not Ethernet")
)

// Error says where a capture can't be read.
type Error struct {
	// Offset is in bytes from the start of the file.
	Offset int64
	Err    error
}

var _ error = (*Error)(nil)

// Error names the offset and the cause.
func (e *Error) Error() string { return fmt.Sprintf("at offset %d: %v", e.Offset, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// RecordKind is what a Record is.
type RecordKind uint8

// The kinds of records.
const (
	PacketRecord RecordKind = iota + 1
	NameRecord
	KeysRecord
)

// Record is one thing read from a capture. Its slices are good until the next call of Next.
type Record struct {
	Kind RecordKind
	// Offset is where the record's block begins.
	Offset int64

	// Time of a packet, in nanoseconds since 1970; 0 where the capture tells none.
	Time      int64
	Direction Direction
	Frame     []byte
	// Length is the frame's on the wire.
	Length int
	// Comments are those of the packet.
	Comments []string
	// Lost is how many packets the writer lost right before this one.
	Lost uint64

	// Names of a NameRecord belong to Addr.
	Addr  netip.Addr
	Names []string

	// Keys are lines of an NSS key log.
	Keys []byte
}

// Reader reads a capture. It is not safe for several goroutines.
type Reader struct {
	src    io.Reader
	buf    []byte
	start  int // of what is not yet used in buf
	ahead  int // how much is read at once
	offset int64
	eof    bool
	srcErr error

	next    func() (*Record, error)
	order   byteOrder
	ifaces  []iface
	record  Record
	pending []nameAddrs // of a name block
	foreign error
	lost    uint64
	// lostVerdicts are those that statistics count.
	lostVerdicts int
	failed       error
	of           string // the recording

	scale int64 // of classic pcap: nanoseconds in a unit of its fraction
}

type nameAddrs struct {
	addr  netip.Addr
	names []string
}

// iface is what is needed of an interface description.
type iface struct {
	link   uint16
	snap   uint32
	units  uint64 // in a second
	shift  uint8  // as a power of two, if units is 0
	offset int64  // seconds
}

// NewReader returns a Reader for pcap or pcapng, as the first bytes say.
func NewReader(src io.Reader) (*Reader, error) {
	r := &Reader{src: src, ahead: firstRead}
	head, err := r.peek(4)
	if err != nil {
		if errors.Is(err, ErrTruncated) {
			err = fmt.Errorf("%w: it has %d bytes", ErrFormat, len(r.buf))
		}
		return nil, r.fail(err)
	}
	if binary.LittleEndian.Uint32(head) == blockSection {
		r.next = r.nextBlock
		return r, nil
	}
	if err := r.classicHead(head); err != nil {
		return nil, r.fail(err)
	}
	r.next = r.nextClassic
	return r, nil
}

// Next returns the next record. At the end of the capture it returns io.EOF; an *Error if what follows
// can't be read. Either is final.
func (r *Reader) Next() (*Record, error) {
	if r.failed != nil {
		return nil, r.failed
	}
	rec, err := r.next()
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = r.fail(err)
		}
		r.failed = err
	}
	return rec, err
}

// Foreign returns the first error about packets that were left out because their link is not Ethernet;
// nil if there were none.
func (r *Reader) Foreign() error { return r.foreign }

// Lost is how many packets the writer said it lost.
func (r *Reader) Lost() uint64 { return r.lost }

// LostVerdicts is how many verdicts the writer said were on no packet.
func (r *Reader) LostVerdicts() int { return r.lostVerdicts }

// Recording names the recording that the file is a part of; "" if its head, which the first Next reads, names none.
func (r *Reader) Recording() string { return r.of }

// Offset is how many bytes were used.
func (r *Reader) Offset() int64 { return r.offset }

func (r *Reader) fail(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Offset: r.offset, Err: err}
}

// peek returns the next n bytes without using them. At the very end it returns io.EOF.
func (r *Reader) peek(n int) ([]byte, error) {
	for len(r.buf)-r.start < n && !r.eof {
		if r.start > 0 {
			r.buf = r.buf[:copy(r.buf, r.buf[r.start:])]
			r.start = 0
		}
		if cap(r.buf) < max(n, r.ahead) {
			r.buf = append(make([]byte, 0, max(n, r.ahead)), r.buf...)
		}
		got, err := r.src.Read(r.buf[len(r.buf):cap(r.buf)])
		r.buf = r.buf[:len(r.buf)+got]
		if len(r.buf) == cap(r.buf) {
			r.ahead = min(2*r.ahead, readAhead)
		}
		if err != nil {
			r.eof = true
			if !errors.Is(err, io.EOF) {
				r.srcErr = err
			}
		}
	}
	switch have := len(r.buf) - r.start; {
	case have >= n:
		return r.buf[r.start : r.start+n], nil
	case r.srcErr != nil:
		return nil, r.srcErr
	case have == 0:
		return nil, io.EOF
	default:
		return nil, fmt.Errorf("%w: %d bytes are left of %d", ErrTruncated, have, n)
	}
}

func (r *Reader) use(n int) {
	r.start += n
	r.offset += int64(n)
}

// cut makes an end in the middle of something an error of its own.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return ErrTruncated
	}
	return err
}

// noteForeign remembers the first packet of another link type.
func (r *Reader) noteForeign(link uint16) {
	if r.foreign == nil {
		r.foreign = r.fail(foreignLink(link))
	}
}

func foreignLink(link uint16) error {
	return fmt.Errorf("%w: its type is %d; capture on the guest's interface (tcpdump -i eth0), not on \"any\"", ErrLink, link)
}

func cString(b []byte) (s string, rest []byte) {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return string(b[:i]), b[i+1:]
	}
	return string(b), nil
}

// byteOrder is a capture's; the zero one isn't known yet. It is a type of its own because calls through
// binary.ByteOrder were a tenth of a review.
type byteOrder uint8

const (
	littleEndian byteOrder = iota + 1
	bigEndian
)

// Uint16 is binary.ByteOrder's.
func (o byteOrder) Uint16(b []byte) uint16 {
	if o == bigEndian {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

// Uint32 is binary.ByteOrder's.
func (o byteOrder) Uint32(b []byte) uint32 {
	if o == bigEndian {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

// Uint64 is binary.ByteOrder's.
func (o byteOrder) Uint64(b []byte) uint64 {
	if o == bigEndian {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}
