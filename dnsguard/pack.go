package dnsguard

import (
	"errors"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
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
	if len(packed) > wire.MaxMessage-wire.OPTLen-len(r.ede) {
		return errTooLong
	}
	start := wire.QuestionEnd(packed)
	r.body = packed[start:]
	r.answers, r.ns = uint16(len(answer)), uint16(len(ns))
	r.ttlOffsets, err = wire.TTLOffsets(r.body, len(answer)+len(ns))
	return err
}
