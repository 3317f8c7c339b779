package dnsguard

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
)

// refuseShape answers a packet that is no plain query, with what is wrong with
// it; nil for what must get no answer at all: packets without a header, and
// answers, since answering those can go on for ever between two servers.
func (g *Guard) refuseShape(packet []byte, ends flowEnds) []byte {
	g.stats.malformed.Add(1)
	if len(packet) < wire.HeaderLen || packet[2]&wire.FlagQR != 0 {
		g.stats.dropped.Add(1)
		g.emitShape(nil, noAnswer, "it is no question", ends)
		return nil
	}
	msg := new(dns.Msg)
	rcode, why := dns.RcodeFormatError, "the query can't be read"
	if packet[2]&wire.MaskOpcode != 0 {
		rcode, why = dns.RcodeNotImplemented, "only plain queries are answered here"
		msg = nil
	} else if len(packet) > maxQuery || msg.Unpack(packet) != nil {
		msg = nil
	} else {
		rcode, why = faultOf(msg)
	}
	g.emitShape(msg, rcode, why, ends)
	if msg == nil || len(msg.Question) != 1 {
		return bareReply(packet, rcode)
	}
	answer := new(dns.Msg).SetRcode(msg, rcode&wire.MaskRcode)
	answer.RecursionAvailable = true
	answer.Rcode = rcode
	if opt := msg.IsEdns0(); opt != nil {
		answer.SetEdns0(wire.MaxUDP, false)
		answer.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeProhibited, ExtraText: why}}
	}
	packed, err := answer.Pack()
	if err != nil || len(packed) > wire.MinUDP {
		return bareReply(packet, rcode)
	}
	return packed
}

// faultOf says what is wrong with a message that can be read.
func faultOf(msg *dns.Msg) (rcode int, why string) {
	switch opt := msg.IsEdns0(); {
	case len(msg.Question) != 1:
		return dns.RcodeFormatError, "a query has exactly one question" // RFC 9619
	case opt != nil && opt.Version() != 0:
		return dns.RcodeBadVers, "only EDNS version 0 is known here"
	case msg.Question[0].Qclass != dns.ClassINET:
		return dns.RcodeRefused, "only class IN is answered here"
	}
	return dns.RcodeFormatError, "a query has one question and at most an OPT record"
}

// bareReply is a header with rcode and nothing else.
func bareReply(packet []byte, rcode int) []byte {
	out := make([]byte, wire.HeaderLen)
	copy(out, packet[:2])
	out[2] = wire.FlagQR | packet[2]&(wire.MaskOpcode|wire.FlagRD)
	out[3] = wire.FlagRA | byte(rcode&wire.MaskRcode)
	binary.BigEndian.PutUint64(out[4:], 0)
	return out
}

// noAnswer is no response code: the guest got none.
const noAnswer = -1

// Unread writes down a datagram or a connection of the guest to a resolver that ended before a question was
// read, or in the middle of one.
func (g *Guard) Unread(proto string, src, dst netip.AddrPort) {
	g.emitShape(nil, noAnswer, "it ended without a question that can be read", flowEnds{proto: proto, srcPort: src.Port(), dst: dst})
}

func (g *Guard) emitShape(msg *dns.Msg, rcode int, why string, ends flowEnds) {
	detail := &audit.DNSDetail{Outcome: dns.RcodeToString[rcode]}
	if msg != nil && len(msg.Question) > 0 {
		detail.Name = msg.Question[0].Name
		detail.Type = dns.Type(msg.Question[0].Qtype).String()
	}
	g.sink.Emit(audit.Event{
		Time:    time.Now(),
		Sandbox: g.sandbox,
		Kind:    audit.DNSQuery,
		Proto:   ends.proto,
		SrcPort: ends.srcPort,
		Dst:     ends.dst.Addr(),
		Port:    ends.dst.Port(),
		Action:  egress.Deny.String(),
		Reason:  egress.ReasonInvalid.String(),
		Message: why,
		DNS:     detail,
	})
}
