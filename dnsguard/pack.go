package dnsguard

import (
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"
)

// errTooLong says that what is left of an answer doesn't fit into a message.
var errTooLong = errors.New("the answer doesn't fit into a message")

// pack puts records into r, compressed against owner, the name asked for in
// lower case with a trailing dot.
func (r *reply) pack(owner string, qtype uint16, answer, ns []dns.RR) error {
	msg := dns.Msg{
		Compress: true,
		Question: []dns.Question{{Name: owner, Qtype: qtype, Qclass: dns.ClassINET}},
		Answer:   answer,
		Ns:       ns,
	}
	packed, err := msg.Pack()
	if err != nil {
		return err
	}
	if len(packed) > maxAnswer-optLen-len(r.ede) {
		return errTooLong
	}
	start := questionEnd(packed)
	r.body = packed[start:]
	r.answers, r.ns = uint16(len(answer)), uint16(len(ns))
	r.ttlOffsets, err = ttlOffsets(r.body, len(answer)+len(ns))
	return err
}

// ttlOffsets finds the TTLs of the records in body, which we packed ourselves.
func ttlOffsets(body []byte, records int) ([]uint16, error) {
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
		return nil, errMalformed
	}
	return offsets, nil
}
