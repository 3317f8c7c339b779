package secretproxy

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// Frames of RFC 6455, section 5.2. No extension is offered, so that the reserved
// bits are never set, and each frame means the same to every reader.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa

	frameFinal  = 0x80
	frameMasked = 0x80
	// maxControl is the largest payload of a control frame (section 5.5).
	maxControl = 125
)

// errFrame ends a connection: what follows could be read in two ways.
var errFrame = errors.New("a frame breaks the rules of RFC 6455, or uses an extension that was not offered")

// frameHead is the head of one frame.
type frameHead struct {
	final  bool
	opcode byte
	masked bool
	key    [4]byte
	length int64
}

func (h *frameHead) control() bool { return h.opcode >= opClose }

// readFrameHead reads a head. fromClient says which side's rules it must keep:
// a client's frames are masked, a server's are not.
func readFrameHead(r *bufio.Reader, fromClient bool) (frameHead, error) {
	var b [8]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return frameHead{}, err
	}
	h := frameHead{final: b[0]&frameFinal != 0, opcode: b[0] & 0xf, masked: b[1]&frameMasked != 0, length: int64(b[1] &^ frameMasked)}
	if b[0]&0x70 != 0 || h.masked != fromClient {
		return h, errFrame
	}
	size, least := 0, int64(0) // a length in more bytes than it needs is refused
	switch h.length {
	case 126:
		size, least = 2, 126
	case 127:
		size, least = 8, 1<<16
	}
	if size > 0 {
		clear(b[:])
		if _, err := io.ReadFull(r, b[8-size:]); err != nil {
			return h, noEOF(err)
		}
		n := binary.BigEndian.Uint64(b[:])
		if h.length = int64(n & (1<<63 - 1)); n>>63 != 0 || h.length < least {
			return h, errFrame
		}
	}
	if h.masked {
		if _, err := io.ReadFull(r, h.key[:]); err != nil {
			return h, noEOF(err)
		}
	}
	switch h.opcode {
	case opContinuation, opText, opBinary:
		return h, nil
	case opClose, opPing, opPong:
		if h.final && h.length <= maxControl {
			return h, nil
		}
	}
	return h, errFrame
}

// noEOF is for an end in the middle of a frame.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends a frame with that payload. It is masked with h's key if h
// is; h.length is not used.
func appendFrame(dst []byte, h *frameHead, payload []byte) []byte {
	first, second := h.opcode, byte(0)
	if h.final {
		first |= frameFinal
	}
	if h.masked {
		second |= frameMasked
	}
	switch n := len(payload); {
	case n <= maxControl:
		dst = append(dst, first, second|byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, first, second|126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, first, second|127), uint64(n))
	}
	if !h.masked {
		return append(dst, payload...)
	}
	dst = append(dst, h.key[:]...)
	at := len(dst)
	dst = append(dst, payload...)
	maskPayload(dst[at:], h.key, 0)
	return dst
}

// maskPayload applies or undoes the masking of section 5.3, from the at-th byte
// of a payload on.
func maskPayload(b []byte, key [4]byte, at int64) {
	for i := range b {
		b[i] ^= key[(at+int64(i))&3]
	}
}
