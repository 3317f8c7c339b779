package wire

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/miekg/dns"
)

// Places and sizes of the wire format (RFC 1035, section 4.1.1; RFC 6891,
// section 6.1.2).
const (
	HeaderLen  = 12
	MaxName    = 255 // a name with all its length octets
	OPTLen     = 11  // an OPT record without options
	pointer    = 0xc0
	FlagQR     = 0x80 // in byte 2
	FlagTC     = 0x02
	FlagRD     = 0x01
	MaskOpcode = 0x78
	FlagRA     = 0x80 // in byte 3
	FlagCD     = 0x10
	MaskRcode  = 0x0f
)

// Question is a guest's query, read by hand: this is where every packet of a
// guest passes, and it must neither allocate nor follow a pointer.
type Question struct {
	// Packet is the whole query; the name ends at NameEnd in it.
	Packet  []byte
	NameEnd int
	// key is the name in lower case as on the wire, with the type behind it.
	key  [MaxName + 2]byte
	Type uint16
	EDNS bool
	// Size is the longest answer over UDP that the guest takes.
	Size int
}

// errShape says that a query isn't of the plain form that Read takes;
// what is wrong with it is for the caller to find out.
var errShape = errors.New("not a plain query")

// Read reads a query of one question, class IN, with at most an OPT
// record behind it.
func (q *Question) Read(packet []byte) error {
	if len(packet) < HeaderLen+5 || packet[2]&(FlagQR|MaskOpcode|FlagTC) != 0 {
		return errShape
	}
	counts := binary.BigEndian.Uint64(packet[4:])
	if counts != 1<<48 && counts != 1<<48|1 {
		return errShape
	}
	end, ok := q.readName(packet)
	if !ok || len(packet) < end+4 {
		return errShape
	}
	q.Packet, q.NameEnd = packet, end
	q.Type = binary.BigEndian.Uint16(packet[end:])
	copy(q.key[end-HeaderLen:], packet[end:end+2])
	if binary.BigEndian.Uint16(packet[end+2:]) != dns.ClassINET {
		return errShape
	}
	q.EDNS, q.Size = false, MinUDP
	rest := packet[end+4:]
	if counts == 1<<48 {
		if len(rest) != 0 {
			return errShape
		}
		return nil
	}
	return q.readOPT(rest)
}

// readName copies the name into key in lower case and returns where it ends.
func (q *Question) readName(packet []byte) (end int, ok bool) {
	off := HeaderLen
	for {
		if off >= len(packet) {
			return 0, false
		}
		n := int(packet[off])
		q.key[off-HeaderLen] = byte(n)
		off++
		if n == 0 {
			return off, true
		}
		// A root label must still fit behind this one.
		if n&pointer != 0 || off+n >= len(packet) || off+n-HeaderLen >= MaxName {
			return 0, false
		}
		for _, c := range packet[off : off+n] {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			q.key[off-HeaderLen] = c
			off++
		}
	}
}

// readOPT reads the record that must be all that is left. Its options are
// ignored: none changes the answer, and client subnets and cookies of a guest
// have no business upstream.
func (q *Question) readOPT(rest []byte) error {
	if len(rest) < OPTLen || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != dns.TypeOPT {
		return errShape
	}
	if version := rest[6]; version != 0 {
		return errShape
	}
	if int(binary.BigEndian.Uint16(rest[9:])) != len(rest)-OPTLen {
		return errShape
	}
	q.EDNS = true
	q.Size = min(max(int(binary.BigEndian.Uint16(rest[3:])), MinUDP), MaxUDP)
	return nil
}

// WireName is the name in lower case as on the wire.
func (q *Question) WireName() []byte { return q.key[:q.NameEnd-HeaderLen] }

// CacheKey is what answers are kept under.
func (q *Question) CacheKey() []byte { return q.key[:q.NameEnd-HeaderLen+2] }

// Text is the name in lower case without a trailing dot, for hostname.Parse,
// and false if a label holds what no host name has: a dot inside a label would
// make another name of it.
func (q *Question) Text() (string, bool) {
	wire := q.WireName()
	var b strings.Builder
	b.Grow(len(wire))
	for wire[0] != 0 {
		label := wire[1 : 1+wire[0]]
		for _, c := range label {
			if c == '.' || c <= ' ' || c >= 0x7f {
				return "", false
			}
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.Write(label)
		wire = wire[1+wire[0]:]
	}
	return b.String(), true
}
