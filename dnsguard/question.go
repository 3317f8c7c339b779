package dnsguard

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/miekg/dns"
)

// Places and sizes of the wire format (RFC 1035, section 4.1.1; RFC 6891,
// section 6.1.2).
const (
	headerLen  = 12
	maxWire    = 255 // a name with all its length octets
	optLen     = 11  // an OPT record without options
	pointer    = 0xc0
	flagQR     = 0x80 // in byte 2
	flagTC     = 0x02
	flagRD     = 0x01
	maskOpcode = 0x78
	flagRA     = 0x80 // in byte 3
	flagCD     = 0x10
	maskRcode  = 0x0f
)

// question is a guest's query, read by hand: this is where every packet of a
// guest passes, and it must neither allocate nor follow a pointer.
type question struct {
	// packet is the whole query; name ends at nameEnd in it.
	packet  []byte
	nameEnd int
	// key is the name in lower case as on the wire, with the type behind it.
	key   [maxWire + 2]byte
	qtype uint16
	edns  bool
	// size is the longest answer over UDP that the guest takes.
	size int
}

// errShape says that a query isn't of the plain form that readQuestion takes;
// what is wrong with it is for refuseShape to find out.
var errShape = errors.New("not a plain query")

// readQuestion reads a query of one question, class IN, with at most an OPT
// record behind it.
func (q *question) read(packet []byte) error {
	if len(packet) < headerLen+5 || packet[2]&(flagQR|maskOpcode|flagTC) != 0 {
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
	q.packet, q.nameEnd = packet, end
	q.qtype = binary.BigEndian.Uint16(packet[end:])
	copy(q.key[end-headerLen:], packet[end:end+2])
	if binary.BigEndian.Uint16(packet[end+2:]) != dns.ClassINET {
		return errShape
	}
	q.edns, q.size = false, minUDPAnswer
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
func (q *question) readName(packet []byte) (end int, ok bool) {
	off := headerLen
	for {
		if off >= len(packet) {
			return 0, false
		}
		n := int(packet[off])
		q.key[off-headerLen] = byte(n)
		off++
		if n == 0 {
			return off, true
		}
		// A root label must still fit behind this one.
		if n&pointer != 0 || off+n >= len(packet) || off+n-headerLen >= maxWire {
			return 0, false
		}
		for _, c := range packet[off : off+n] {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			q.key[off-headerLen] = c
			off++
		}
	}
}

// readOPT reads the record that must be all that is left. Its options are
// ignored: none changes the answer, and client subnets and cookies of a guest
// have no business upstream.
func (q *question) readOPT(rest []byte) error {
	if len(rest) < optLen || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != dns.TypeOPT {
		return errShape
	}
	if version := rest[6]; version != 0 {
		return errShape
	}
	if int(binary.BigEndian.Uint16(rest[9:])) != len(rest)-optLen {
		return errShape
	}
	q.edns = true
	q.size = min(max(int(binary.BigEndian.Uint16(rest[3:])), minUDPAnswer), maxUDPAnswer)
	return nil
}

// wireName is the name in lower case as on the wire.
func (q *question) wireName() []byte { return q.key[:q.nameEnd-headerLen] }

// cacheKey is what answers are kept under.
func (q *question) cacheKey() []byte { return q.key[:q.nameEnd-headerLen+2] }

// text is the name in lower case without a trailing dot, for hostname.Parse,
// and false if a label holds what no host name has: a dot inside a label would
// make another name of it.
func (q *question) text() (string, bool) {
	wire := q.wireName()
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
