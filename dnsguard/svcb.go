package dnsguard

import (
	"net"
	"net/netip"
	"slices"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// quicProbe stands for a public address when none of the name's is known yet,
// to ask whether QUIC may leave at all. Nothing is sent to it.
var quicProbe = netip.MustParseAddr("1.1.1.1")

// service cleans an HTTPS or SVCB record (RFC 9460) and reports whether it is
// still of use.
//
// Only parameters that are understood and checked are handed on. Hints are
// addresses and are judged like any. "ech" goes: with it a client hides the
// name that the connection is judged by. "h3" goes where UDP doesn't leave, so
// that clients don't wait for a QUIC handshake that is refused.
func (f *filter) service(rr *dns.SVCB) bool {
	if rr.Priority == 0 { // AliasMode: a CNAME by another name
		rr.Value = nil
		return rr.Target == "." || checkTarget(rr.Target) == nil
	}
	if rr.Target != "." && checkTarget(rr.Target) != nil {
		return false
	}
	kept := rr.Value[:0]
	var mandatory []dns.SVCBKey
	for _, value := range rr.Value {
		keep := false
		switch v := value.(type) {
		case *dns.SVCBMandatory:
			mandatory, keep = v.Code, true
		case *dns.SVCBPort, *dns.SVCBNoDefaultAlpn, *dns.SVCBAlpn:
			keep = true
		case *dns.SVCBIPv4Hint:
			v.Hint = f.hints(v.Hint, net.IP.To4)
			keep = len(v.Hint) > 0
		case *dns.SVCBIPv6Hint:
			v.Hint = f.hints(v.Hint, f.sixOnly)
			keep = len(v.Hint) > 0
		}
		if keep {
			kept = append(kept, value)
		}
	}
	rr.Value = kept
	if !f.allowsQUIC(rr) && !dropH3(rr) {
		return false
	}
	return hasAll(rr.Value, mandatory)
}

// hints judges the addresses of a hint, whose bytes raw gives. Only where the
// record's target is the owner do they belong to the name that is judged; all
// are pinned to it all the same, since clients send the owner's name in SNI to
// them.
func (f *filter) hints(hints []net.IP, raw func(net.IP) net.IP) []net.IP {
	return slices.DeleteFunc(hints, func(ip net.IP) bool { return !f.address(raw(ip)) })
}

// sixOnly is ip where the host has IPv6, and no address where it hasn't.
func (f *filter) sixOnly(ip net.IP) net.IP {
	if !f.ipv6 {
		return nil
	}
	return ip
}

// allowsQUIC reports whether a flow to UDP, on the record's port, would be let
// out to any address that is known for the name.
func (f *filter) allowsQUIC(rr *dns.SVCB) bool {
	port := uint16(443)
	for _, value := range rr.Value {
		if p, ok := value.(*dns.SVCBPort); ok {
			port = p.Port
		}
	}
	known := append(slices.Clone(f.addrs), f.pins.Addrs(f.host)...)
	if len(known) == 0 {
		known = []netip.Addr{quicProbe}
	}
	for _, addr := range known {
		flow := egress.Flow{
			Proto:  egress.UDP,
			Dst:    netip.AddrPortFrom(addr, port),
			Pinned: []hostname.Name{f.host},
		}
		if f.judge.Decide(&flow).Action == egress.Allow {
			return true
		}
	}
	return false
}

// dropH3 takes HTTP/3 out of alpn and reports whether a protocol is left: the
// default one is, unless the record rules it out.
func dropH3(rr *dns.SVCB) bool {
	noDefault, left := false, 0
	kept := rr.Value[:0]
	for _, value := range rr.Value {
		if alpn, ok := value.(*dns.SVCBAlpn); ok {
			alpn.Alpn = slices.DeleteFunc(alpn.Alpn, isH3)
			if left = len(alpn.Alpn); left == 0 {
				continue
			}
		}
		if _, ok := value.(*dns.SVCBNoDefaultAlpn); ok {
			noDefault = true
		}
		kept = append(kept, value)
	}
	rr.Value = kept
	return left > 0 || !noDefault
}

// isH3 knows "h3" and its drafts ("h3-29").
func isH3(id string) bool { return id == "h3" || len(id) > 3 && id[:3] == "h3-" || id == "quic" }

// hasAll reports whether every mandatory parameter is still there: a record
// without one must not be used, and one of ours would be malformed.
func hasAll(values []dns.SVCBKeyValue, mandatory []dns.SVCBKey) bool {
	for _, key := range mandatory {
		if !slices.ContainsFunc(values, func(v dns.SVCBKeyValue) bool { return v.Key() == key }) {
			return false
		}
	}
	return true
}
