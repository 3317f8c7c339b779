package upstream

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
)

// Faults of one exchange with one upstream. Each makes the next server be asked.
var (
	errMalformed = errors.New("the server's answer can't be read")
	errNotOurs   = errors.New("the server answers another question")
	errTruncated = errors.New("the server's answer is cut short over TCP too")
)

// Query is one question to an upstream.
type Query struct {
	Name []byte // the name in lower case, as on the wire
	Type uint16
	// Spend is asked before each sending of so many bytes; nil counts nothing.
	Spend func(bytes int) error
}

// SpentError says that the sandbox may send nothing more.
type SpentError struct{ error }

// sent returns the packet of one more sending of the question, which must follow; an error keeps it back.
func (o Query) sent(edns bool) ([]byte, error) {
	query := o.packet(edns)
	if o.Spend == nil {
		return query, nil
	}
	if err := o.Spend(len(query)); err != nil {
		return nil, SpentError{err}
	}
	return query, nil
}

// packet builds a query with a random id and, against spoofed answers, random
// case in the name: about one more bit to guess for each letter
// (draft-vixie-dnsext-dns0x20). Without edns it has no OPT record, for servers
// that don't know it.
func (o Query) packet(edns bool) []byte {
	var random [2 + wire.MaxName/8 + 1]byte
	_, _ = rand.Read(random[:]) // never fails, see crypto/rand
	p := make([]byte, 0, 2+wire.HeaderLen+len(o.Name)+4+wire.OPTLen)
	p = append(p, random[0], random[1], wire.FlagRD, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	p = append(p, o.Name...)
	for i, c := range p[wire.HeaderLen:] {
		// A length octet is at most 63, below every letter.
		if 'a' <= c && c <= 'z' && random[2+i/8]>>(i%8)&1 == 1 {
			p[wire.HeaderLen+i] = c - 'a' + 'A'
		}
	}
	p = binary.BigEndian.AppendUint16(p, o.Type)
	p = binary.BigEndian.AppendUint16(p, dns.ClassINET)
	if edns {
		p[11] = 1
		p = wire.AppendOPT(p, 0, nil)
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
	end := wire.QuestionEnd(query)
	if len(answer) < end || answer[0] != query[0] || answer[1] != query[1] {
		return matchNone
	}
	if answer[2]&(wire.FlagQR|wire.MaskOpcode) != wire.FlagQR || binary.BigEndian.Uint16(answer[4:]) != 1 {
		return matchNone
	}
	sent, got := query[wire.HeaderLen:end], answer[wire.HeaderLen:end]
	switch {
	case bytes.Equal(sent, got):
		return matchExact
	case bytes.Equal(wire.Lowered(sent), wire.Lowered(got)):
		return matchFolded
	}
	return matchNone
}

// unpack reads an answer that matches its query.
func unpack(answer []byte) (*dns.Msg, error) {
	msg := new(dns.Msg)
	if err := msg.Unpack(answer); err != nil {
		return nil, errors.Join(errMalformed, err)
	}
	return msg, nil
}
