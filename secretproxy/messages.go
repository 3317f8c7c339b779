package secretproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
)

// Bodies of gRPC, gRPC-Web and Connect are sequences of messages, each behind five bytes: flags and
// length (gRPC over HTTP2, "Length-Prefixed-Message"). A message may be compressed by itself, which no
// Content-Encoding tells of.
const (
	messagePrefix     = 5
	messageCompressed = 1 // the flag
	// messageFlags are all that exist: compressed, Connect's end of a stream, gRPC-Web's trailers.
	messageFlags = 0x83
	// maxMessage bounds a message that is held whole while it is decompressed: what gRPC's own clients
	// take unless they are configured otherwise.
	maxMessage = 4 << 20
)

// errMessage ends an answer in which a message can't be searched.
var errMessage = errors.New("a compressed message can't be searched for secrets")

// messageCoding returns how messages of an answer are compressed, and whether its body is made of them.
func messageCoding(h http.Header) (coding string, framed bool) {
	media := strings.ToLower(h.Get("Content-Type"))
	// The "-text" form of gRPC-Web is base64 all over; what is compressed within is refused unread.
	framed = (strings.HasPrefix(media, "application/grpc") || strings.HasPrefix(media, "application/connect+")) &&
		!strings.HasPrefix(media, "application/grpc-web-text")
	for _, name := range []string{"Grpc-Encoding", "Connect-Content-Encoding"} {
		for _, v := range h[name] {
			if v = strings.ToLower(strings.TrimSpace(v)); v != "" && v != "identity" {
				coding = v
			}
		}
	}
	return coding, framed
}

// decodedMessages returns body with its messages decompressed, and takes the fields that said how they
// were compressed out of h.
func decodedMessages(h http.Header, body io.Reader, held *memory.Hold) (io.Reader, error) {
	coding, framed := messageCoding(h)
	switch {
	case coding != "" && (!framed || !mask.CanDecode(coding)):
		return nil, fmt.Errorf("%w: %q", errMessage, coding)
	case !framed:
		return body, nil
	}
	delete(h, "Grpc-Encoding")
	delete(h, "Connect-Content-Encoding")
	return &messages{source: bufio.NewReader(body), coding: coding, held: held}, nil
}

// messages decompresses the messages of a body one by one. Others go through as they come.
type messages struct {
	source *bufio.Reader
	coding string
	held   *memory.Hold
	ready  []byte // of a prefix
	plain  []byte // of a message that was compressed
	taken  int64  // for plain
	left   uint32 // bytes to come of a message that goes through
	other  bool   // it is no sequence of messages, whatever its type says: no client can read any from it
	err    error
}

// Read implements io.Reader. It waits for the first byte only, so that a live stream stays one.
func (m *messages) Read(p []byte) (n int, err error) {
	for n < len(p) {
		switch {
		case len(m.ready) > 0:
			copied := copy(p[n:], m.ready)
			m.ready, n = m.ready[copied:], n+copied
		case len(m.plain) > 0:
			copied := copy(p[n:], m.plain)
			m.plain, n = m.plain[copied:], n+copied
		case n > 0 && (m.err != nil || m.source.Buffered() == 0 || m.left == 0 && m.source.Buffered() < messagePrefix):
			return n, nil //nolint:nilerr // the next Read tells it
		case m.err != nil:
			return 0, m.err
		case m.other:
			got, err := m.source.Read(p[n:])
			return n + got, err
		case m.left > 0:
			piece := p[n:min(int64(len(p)), int64(n)+int64(m.left))]
			got, err := m.source.Read(piece)
			m.left, n, m.err = m.left-uint32(got), n+got, err
		default:
			m.err = m.next()
		}
	}
	return n, nil
}

// next reads a prefix, and the message behind it if that is compressed.
func (m *messages) next() error {
	first, err := m.source.Peek(1)
	if err == nil && first[0]&^messageFlags != 0 {
		m.other = true
		return nil
	}
	var prefix [messagePrefix]byte
	if n, err := io.ReadFull(m.source, prefix[:]); err != nil {
		m.ready = bytes.Clone(prefix[:n]) // a body that breaks off is the client's to judge
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF
		}
		return err
	}
	size := binary.BigEndian.Uint32(prefix[1:])
	if prefix[0]&messageCompressed == 0 {
		m.ready, m.left = bytes.Clone(prefix[:]), size
		return nil
	}
	if m.coding == "" || size > maxMessage {
		return errMessage
	}
	m.held.Give(m.taken)
	packed, err := m.held.ReadAll(io.LimitReader(m.source, int64(size)), int64(size))
	defer m.held.Give(int64(cap(packed)))
	if err != nil {
		return err
	}
	plain, err := m.unpack(packed)
	m.taken = int64(cap(plain))
	if errors.Is(err, memory.ErrFull) {
		return err
	}
	if err != nil || uint32(len(packed)) < size {
		return errMessage
	}
	prefix[0] &^= messageCompressed
	binary.BigEndian.PutUint32(prefix[1:], uint32(len(plain)))
	m.plain = plain
	m.ready = bytes.Clone(prefix[:])
	return nil
}

// unpack decompresses one message.
func (m *messages) unpack(packed []byte) ([]byte, error) {
	if len(packed) == 0 { // some send an empty message as no bytes at all
		return nil, nil
	}
	r, err := mask.Decode(bytes.NewReader(packed), m.coding)
	if err != nil {
		return nil, err
	}
	return m.held.ReadAll(r, maxMessage)
}
