package dnsguard

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"
)

// Faults of one exchange with one upstream. Each makes the next server be asked.
var (
	errMalformed = errors.New("the server's answer can't be read")
	errNotOurs   = errors.New("the server answers another question")
	errTruncated = errors.New("the server's answer is cut short over TCP too")
)

// outgoing is one question to an upstream.
type outgoing struct {
	wire  []byte // the name in lower case, as on the wire
	qtype uint16
	spend func(bytes int) error // nil: nothing is counted
}

// spentError says that the sandbox may send nothing more.
type spentError struct{ error }

// sent returns the packet of one more sending of the question, which must follow; an error keeps it back.
func (o outgoing) sent(edns bool) ([]byte, error) {
	query := o.packet(edns)
	if o.spend == nil {
		return query, nil
	}
	if err := o.spend(len(query)); err != nil {
		return nil, spentError{err}
	}
	return query, nil
}

// packet builds a query with a random id and, against spoofed answers, random
// case in the name: about one more bit to guess for each letter
// (draft-vixie-dnsext-dns0x20). Without edns it has no OPT record, for servers
// that don't know it.
func (o outgoing) packet(edns bool) []byte {
	var random [2 + maxWire/8 + 1]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	p := make([]byte, 0, 2+headerLen+len(o.wire)+4+optLen)
	p = append(p, random[0], random[1], flagRD, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	p = append(p, o.wire...)
	for i, c := range p[headerLen:] {
		// A length octet is at most 63, below every letter.
		if 'a' <= c && c <= 'z' && random[2+i/8]>>(i%8)&1 == 1 {
			p[headerLen+i] = c - 'a' + 'A'
		}
	}
	p = binary.BigEndian.AppendUint16(p, o.qtype)
	p = binary.BigEndian.AppendUint16(p, dns.ClassINET)
	if edns {
		p[11] = 1
		p = appendOPT(p, 0, nil)
	}
	return p
}

// match says how an answer fits a query.
type match uint8

const (
	matchNone match = iota
	// matchFolded fits but for the case of the name: a server that doesn't
	// keep it, or someone who guessed the rest.
	matchFolded
	matchExact
)

// matches compares id, kind and question of answer with those of query. An
// answer without its question, as some servers send with an error, is none.
func matches(query, answer []byte) match {
	end := questionEnd(query)
	if len(answer) < end || answer[0] != query[0] || answer[1] != query[1] {
		return matchNone
	}
	if answer[2]&(flagQR|maskOpcode) != flagQR || binary.BigEndian.Uint16(answer[4:]) != 1 {
		return matchNone
	}
	sent, got := query[headerLen:end], answer[headerLen:end]
	switch {
	case bytes.Equal(sent, got):
		return matchExact
	case bytes.Equal(lowered(sent), lowered(got)):
		return matchFolded
	}
	return matchNone
}

// questionEnd is where the question of a query of ours ends.
func questionEnd(query []byte) int {
	off := headerLen
	for query[off] != 0 {
		off += 1 + int(query[off])
	}
	return off + 5
}

// lowered returns a copy of b with ASCII letters in lower case. Unlike
// bytes.ToLower it takes no part of a length for UTF-8.
func lowered(b []byte) []byte {
	out := bytes.Clone(b)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return out
}

// unpack reads an answer that matches its query.
func unpack(answer []byte) (*dns.Msg, error) {
	msg := new(dns.Msg)
	if err := msg.Unpack(answer); err != nil {
		return nil, errors.Join(errMalformed, err)
	}
	return msg, nil
}
