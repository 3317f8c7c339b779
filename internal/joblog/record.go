package joblog

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// Stream says where output came from.
type Stream byte

// The streams. Their values stand in files.
const (
	Stdout Stream = 1
	Stderr Stream = 2

	// position begins a segment: its payload is the number of bytes before it.
	position Stream = 3
)

// String is the name that users see.
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

const (
	// recordHead is a record's stream (1 byte), time (8, nanoseconds since 1970)
	// and length (4), big-endian; the payload follows.
	recordHead = 13
	// maxPayload bounds a record's payload, in bytes: more than one message of the agent holds.
	maxPayload = 64 << 10
	// positionLen is the length of a position's payload.
	positionLen = 8
)

func appendRecord(b []byte, s Stream, at time.Time, p []byte) []byte {
	b = append(b, byte(s))
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p)))
	return append(b, p...)
}

// record is one that was read. data is valid until the next read.
type record struct {
	stream Stream
	at     time.Time
	data   []byte
}

// readRecord reads one from r, with buf for its bytes. io.EOF and io.ErrUnexpectedEOF tell that it isn't there (whole)
// yet.
func readRecord(r io.Reader, buf *[recordHead + maxPayload]byte) (record, int64, error) {
	if _, err := io.ReadFull(r, buf[:recordHead]); err != nil {
		return record{}, 0, err
	}
	rec := record{stream: Stream(buf[0]), at: time.Unix(0, int64(binary.BigEndian.Uint64(buf[1:9])))}
	n := int(binary.BigEndian.Uint32(buf[9:recordHead]))
	if n > maxPayload || rec.stream < Stdout || rec.stream > position || rec.stream == position && n != positionLen {
		return record{}, 0, fmt.Errorf("%w: a record of %d bytes for stream %d", ErrDamaged, n, rec.stream)
	}
	rec.data = buf[recordHead : recordHead+n]
	if _, err := io.ReadFull(r, rec.data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return record{}, 0, err
	}
	return rec, int64(recordHead + n), nil
}
