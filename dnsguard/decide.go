package dnsguard

import (
	"net/netip"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// disposition is what becomes of a question before anybody is asked.
type disposition uint8

const (
	refuse disposition = iota
	local              // it is answered from here
	ask                // the upstreams are asked
)

// decision is the judgement of one question: a Guard answers by it, a Replay reports it.
type decision struct {
	subject
	disposition disposition
	// malformed says what is wrong with the question itself, whatever its name; ede is the error for it.
	malformed string
	ede       uint16
	// owners are the names of the address in a reverse name.
	owners []hostname.Name
}

// nameTable is what was resolved, and the names of [hosts]: those in force, or those of a capture.
type nameTable interface {
	// maps reports whether name stands in [hosts].
	maps(name hostname.Name) bool
	// Mapped returns the name of [hosts] that addr was given out for.
	Mapped(addr netip.Addr) (hostname.Name, bool)
	// Pinned returns the names that are pinned to addr.
	Pinned(addr netip.Addr) []hostname.Name
}

var (
	_ nameTable = (*epoch)(nil)
	_ nameTable = (*Replay)(nil)
)

// decide judges a question. It knows no rates, no bound on tunnels and not whether the host has IPv6.
func decide(judge Judge, known nameTable, q *wire.Question) decision {
	name, ok := questionName(q)
	d := decision{subject: subject{name: name, host: name}}
	d.verdict = egress.Verdict{Reason: egress.ReasonInvalid, Name: name}
	switch {
	case !answerable(q.Type):
		d.ede, d.malformed = dns.ExtendedErrorCodeNotSupported, "questions of this type are not answered here"
		return d
	case !ok:
		d.ede, d.malformed = dns.ExtendedErrorCodeProhibited, "that is no host name"
		return d
	}
	return decideName(judge, known, name, q.Type)
}

// decideName is decide for a name whose question is as it should be.
func decideName(judge Judge, known nameTable, name hostname.Name, qtype uint16) decision {
	d := decision{subject: subject{name: name, host: name}}
	if known.maps(name) {
		d.verdict = judge.DecideName(name)
		return d.as(local)
	}
	if addr, ok := reverseAddr(name); ok {
		if owner, ok := known.Mapped(addr); ok {
			d.owners = []hostname.Name{owner}
		} else {
			d.owners = known.Pinned(addr)
		}
		class := egress.Classify(addr)
		switch {
		case len(d.owners) > 0:
			d.verdict = egress.Verdict{Action: egress.Allow, Reason: egress.ReasonRule, Name: name}
			return d.as(local)
		case !class.Public(): // what a private address is called is not the guest's business
			d.verdict = egress.Verdict{Reason: egress.ReasonSpecialAddress, Class: class, Name: name}
			return d.as(refuse)
		}
	}
	d.subject = judgeName(judge, name, qtype)
	return d.as(ask)
}

// as is d with what becomes of the question if the verdict allows it.
func (d decision) as(allowed disposition) decision {
	if d.verdict.Allowed() {
		d.disposition = allowed
	}
	return d
}
