package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/miekg/dns"
)

// Sizes of messages in bytes.
const (
	// MaxMessage is the longest message of DNS over TCP (RFC 1035, section
	// 4.2.2).
	MaxMessage = 65535
	// MaxUDP is the longest answer over UDP whatever the guest says it
	// can take: the DNS flag day's 1232 bytes never fragment on an IPv6 path.
	MaxUDP = 1232
	// MinUDP is what a guest without EDNS takes (RFC 1035, section 2.3.4).
	MinUDP = 512
)

// AppendOPT appends an OPT record that offers MaxUDP and holds options.
func AppendOPT(out []byte, rcode int, options []byte) []byte {
	out = append(out, 0)
	out = binary.BigEndian.AppendUint16(out, dns.TypeOPT)
	out = binary.BigEndian.AppendUint16(out, MaxUDP)
	out = append(out, byte(rcode>>4), 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(len(options)))
	return append(out, options...)
}

// PackEDE returns an Extended DNS Error option (RFC 8914, section 2). The text
// is cut: it must fit into the smallest answer beside the longest name.
func PackEDE(code uint16, text string) []byte {
	const maxText = 200
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	opt := binary.BigEndian.AppendUint16(nil, dns.EDNS0EDE)
	opt = binary.BigEndian.AppendUint16(opt, uint16(2+len(text)))
	opt = binary.BigEndian.AppendUint16(opt, code)
	return append(opt, text...)
}

// errRecords says that records don't end where their message does.
var errRecords = errors.New("the records don't fill the message")

// TTLOffsets finds the TTLs of the records in body, which we packed ourselves.
func TTLOffsets(body []byte, records int) ([]uint16, error) {
	offsets := make([]uint16, 0, records)
	off := 0
	for range records {
		for body[off] != 0 && body[off]&pointer != pointer {
			off += 1 + int(body[off])
		}
		if body[off] == 0 {
			off++
		} else {
			off += 2
		}
		offsets = append(offsets, uint16(off+4)) // behind type and class
		off += 10 + int(binary.BigEndian.Uint16(body[off+8:]))
	}
	if off != len(body) {
		return nil, errRecords
	}
	return offsets, nil
}

// QuestionEnd is where the question of a well-formed query ends.
func QuestionEnd(query []byte) int {
	off := HeaderLen
	for query[off] != 0 {
		off += 1 + int(query[off])
	}
	return off + 5
}

// Lowered returns a copy of b with ASCII letters in lower case. Unlike
// bytes.ToLower it takes no part of a length for UTF-8.
func Lowered(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}
