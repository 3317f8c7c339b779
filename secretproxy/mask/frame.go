package mask

import (
	"encoding/binary"
	"mime"
	"strings"
)

// Framing is how a live body is divided into messages. At a message's end
// nothing of it is held back.
type Framing uint8

const (
	// frameNone has no boundaries but blank lines, as server-sent events do.
	frameNone Framing = iota
	// frameLines ends a message with each line break: all kinds of JSON.
	frameLines
	// framePrefixed has a flag byte and a length of four bytes before each
	// message: gRPC and Connect.
	framePrefixed
)

// FramingOf returns the framing of bodies of a content type.
func FramingOf(contentType string) Framing {
	media, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
	case strings.HasPrefix(media, "application/grpc"), strings.HasPrefix(media, "application/connect+"):
		return framePrefixed
	case strings.Contains(media, "json"):
		return frameLines
	}
	return frameNone
}

// prefixSize is the size of the head of a message of gRPC.
const prefixSize = 5

// frame is where a stream is in its messages.
type frame struct {
	kind Framing
	head [prefixSize]byte
	seen int   // bytes of the head
	left int64 // bytes of the message
}

// feed follows b from an index on. It returns the index from which bytes belong
// to the message under way, and whether one ended before.
func (f *frame) feed(b []byte, from int) (at int, fresh bool) {
	if f.kind != framePrefixed {
		return from, false
	}
	for from < len(b) {
		if f.left > 0 {
			n := min(f.left, int64(len(b)-from))
			if f.left -= n; f.left > 0 {
				return from, fresh
			}
			from, fresh = from+int(n), true
			continue
		}
		n := copy(f.head[f.seen:], b[from:])
		f.seen += n
		from, fresh = from+n, true
		if f.seen == prefixSize {
			f.seen, f.left = 0, int64(binary.BigEndian.Uint32(f.head[1:]))
		}
	}
	return from, fresh
}
