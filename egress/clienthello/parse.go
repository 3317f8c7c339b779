package clienthello

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/cryptobyte"

	"github.com/msb-project/msb/hostname"
)

const (
	// MaxBytes bounds what is read before a verdict: a hello with post-quantum key shares is about
	// 2 KiB, one with large session tickets 6 KiB; 16 KiB is the largest TLS record.
	MaxBytes = 16 << 10
	// maxRecords bounds how many records one hello may be spread over. Real clients use one or two; a
	// record for each byte is an attack on parsers that read only the first.
	maxRecords = 64

	recordHeaderLen     = 5       // type, version, length: RFC 8446, section 5.1
	maxRecordLen        = 1 << 14 // RFC 8446, section 5.1
	handshakeHeaderLen  = 4       // type, 24-bit length: RFC 8446, section 4
	recordTypeHandshake = 22
	typeClientHello     = 1

	// Extension numbers of the IANA registry "TLS ExtensionType Values".
	extServerName = 0
	extALPN       = 16
	extECH        = 0xfe0d
	nameTypeHost  = 0 // RFC 6066, section 3
	echTypeOuter  = 0 // RFC 9849, section 5: the outer hello of an encrypted one
)

var (
	// ErrIncomplete says that the bytes are a good beginning and more must be read.
	ErrIncomplete = errors.New("the ClientHello goes on")
	// ErrNotTLS says that the first bytes are no TLS handshake record.
	ErrNotTLS = errors.New("not a TLS ClientHello")
	// ErrMalformed says that the record is TLS but the hello can't be read unambiguously.
	ErrMalformed = errors.New("malformed ClientHello")
	// ErrTooLong says that the hello is over MaxBytes or maxRecords.
	ErrTooLong = errors.New("ClientHello over 16 KiB")

	errBehind = fmt.Errorf("%w: bytes behind the hello in its record", ErrMalformed)
)

// Hello is what a ClientHello says of its destination.
type Hello struct {
	// ServerName is the SNI host name; zero when there is none.
	ServerName hostname.Name
	// ALPN holds the offered application protocols in the client's order.
	ALPN []string
	// ECH tells that the hello is the outer one of an encrypted ClientHello: the name that the server
	// will see is another, so ServerName must not be trusted. A GREASE extension (RFC 9849, section 6.2)
	// can't be told from a real one and counts too.
	ECH bool
}

// Parse reads a ClientHello from the first bytes of a connection. ErrIncomplete asks for more bytes;
// every other error is final.
func Parse(b []byte) (Hello, error) {
	msg, err := join(b)
	if err != nil {
		return Hello{}, err
	}
	return parseMessage(msg)
}

// join returns the handshake message that the records in b carry, without its header.
func join(b []byte) ([]byte, error) {
	var msg []byte
	for records := 0; ; records++ {
		if records == maxRecords || len(msg) > MaxBytes {
			return nil, ErrTooLong
		}
		if len(b) > 0 && b[0] != recordTypeHandshake {
			return nil, notHandshake(records)
		}
		if len(b) > 1 && b[1] != 3 { // every TLS version since SSL 3.0 writes 3 here; SSLv2 does not
			return nil, notHandshake(records)
		}
		if len(b) < recordHeaderLen {
			return nil, ErrIncomplete
		}
		n := int(b[3])<<8 | int(b[4])
		if n == 0 || n > maxRecordLen {
			return nil, fmt.Errorf("%w: record of %d bytes", ErrMalformed, n)
		}
		have := min(n, len(b)-recordHeaderLen)
		if part := b[recordHeaderLen : recordHeaderLen+have]; records == 0 {
			msg = part[:have:have] // nearly all messages have one record; another is appended to a copy
		} else {
			msg = append(msg, part...)
		}
		body, err := complete(msg)
		switch {
		case err != nil:
			return nil, err
		case body != nil && have < n: // what comes of the record is behind the hello
			return nil, errBehind
		case body != nil:
			return body, nil
		case have < n:
			return nil, ErrIncomplete
		}
		b = b[recordHeaderLen+n:]
	}
}

// complete returns the body of the handshake message at the start of msg, or nil while it is cut.
func complete(msg []byte) ([]byte, error) {
	if len(msg) > 0 && msg[0] != typeClientHello {
		return nil, fmt.Errorf("%w: handshake message of type %d", ErrNotTLS, msg[0])
	}
	if len(msg) < handshakeHeaderLen {
		return nil, nil
	}
	n := int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3])
	if n > MaxBytes {
		return nil, ErrTooLong
	}
	if len(msg) < handshakeHeaderLen+n {
		return nil, nil
	}
	if len(msg) > handshakeHeaderLen+n {
		// RFC 8446, section 5.1: a ClientHello ends at a record border. Bytes behind it are how one
		// parser is made to see another hello than the next.
		return nil, errBehind
	}
	return msg[handshakeHeaderLen:], nil
}

func notHandshake(records int) error {
	if records == 0 {
		return ErrNotTLS
	}
	return fmt.Errorf("%w: another record inside the hello", ErrMalformed)
}

func parseMessage(msg []byte) (Hello, error) {
	s := cryptobyte.String(msg)
	var (
		version                       uint16
		session, suites, compressions cryptobyte.String
		exts                          cryptobyte.String
	)
	if !s.ReadUint16(&version) || !s.Skip(32) ||
		!s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) ||
		!s.ReadUint8LengthPrefixed(&compressions) {
		return Hello{}, fmt.Errorf("%w: cut before the extensions", ErrMalformed)
	}
	if s.Empty() {
		return Hello{}, nil
	}
	if !s.ReadUint16LengthPrefixed(&exts) || !s.Empty() {
		return Hello{}, fmt.Errorf("%w: extensions of a wrong length", ErrMalformed)
	}
	return parseExtensions(exts)
}

func parseExtensions(exts cryptobyte.String) (Hello, error) {
	var h Hello
	var seen [(1 << 16) / 64]uint64 // a bit for each type
	for !exts.Empty() {
		var (
			typ  uint16
			body cryptobyte.String
		)
		if !exts.ReadUint16(&typ) || !exts.ReadUint16LengthPrefixed(&body) {
			return Hello{}, fmt.Errorf("%w: extension cut", ErrMalformed)
		}
		if seen[typ/64]&(1<<(typ%64)) != 0 {
			// Two SNI extensions: one parser takes the first, the next takes the last.
			return Hello{}, fmt.Errorf("%w: extension %d twice", ErrMalformed, typ)
		}
		seen[typ/64] |= 1 << (typ % 64)
		if err := h.extension(typ, body); err != nil {
			return Hello{}, err
		}
	}
	return h, nil
}

func (h *Hello) extension(typ uint16, body cryptobyte.String) error {
	switch typ {
	case extServerName:
		return h.serverName(body)
	case extALPN:
		return h.alpn(body)
	case extECH:
		var kind uint8
		if !body.ReadUint8(&kind) {
			return fmt.Errorf("%w: empty encrypted_client_hello", ErrMalformed)
		}
		h.ECH = kind == echTypeOuter
	}
	return nil
}

func (h *Hello) serverName(body cryptobyte.String) error {
	var list, name cryptobyte.String
	var kind uint8
	if !body.ReadUint16LengthPrefixed(&list) || !body.Empty() ||
		!list.ReadUint8(&kind) || !list.ReadUint16LengthPrefixed(&name) || !list.Empty() {
		return fmt.Errorf("%w: server_name must hold exactly one name", ErrMalformed)
	}
	if kind != nameTypeHost {
		return fmt.Errorf("%w: server_name of type %d", ErrMalformed, kind)
	}
	// RFC 6066, section 3, has ASCII only. Letters beyond it would be judged as the name that they are mapped
	// to, and relayed as they are to a server that may map them to another.
	if slices.ContainsFunc(name, func(c byte) bool { return c >= 0x80 }) {
		return fmt.Errorf("%w: server_name is not ASCII", ErrMalformed)
	}
	n, err := hostname.Parse(string(name))
	if err != nil {
		return fmt.Errorf("%w: server_name: %w", ErrMalformed, err)
	}
	h.ServerName = n
	return nil
}

func (h *Hello) alpn(body cryptobyte.String) error {
	var list cryptobyte.String
	if !body.ReadUint16LengthPrefixed(&list) || !body.Empty() || list.Empty() {
		return fmt.Errorf("%w: application_layer_protocol_negotiation", ErrMalformed)
	}
	for !list.Empty() {
		var p cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&p) || p.Empty() {
			return fmt.Errorf("%w: application_layer_protocol_negotiation", ErrMalformed)
		}
		h.ALPN = append(h.ALPN, string(p))
	}
	return nil
}
