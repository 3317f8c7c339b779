package dnsguard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// Faults of an upstream's answer as a whole.
var (
	errChain     = fmt.Errorf("the answer's CNAME chain is a loop or longer than %d", maxChain)
	errBadTarget = errors.New("the answer's CNAME chain leads to something that is no host name")
)

// localTargetError says that a CNAME chain leads to a name that means the host
// or nothing public: an internal name smuggled behind an allowed one.
type localTargetError struct {
	target hostname.Name
	reason egress.Reason
}

func (e localTargetError) Error() string {
	return "the answer leads to " + e.target.Display() + ": " + e.reason.Sentence()
}

// filter takes from an upstream's message what a guest may see: the CNAME chain
// from the name asked to records of the type asked, and nothing else. Records
// for other names, additional sections and signatures stay behind, so what an
// upstream or a spoofer adds to an answer goes nowhere.
type filter struct {
	judge Judge
	pins  *Pins
	ipv6  bool
	// host is what was judged and gets the pins; owner the name asked for,
	// lower case with a trailing dot.
	host  hostname.Name
	owner string
	qtype uint16

	// rrs and ns are what is left; ttl is the shortest of theirs.
	rrs, ns []dns.RR
	ttl     time.Duration
	addrs   []netip.Addr
	removed []netip.Addr
	rcode   int
	// found says that records of the type asked were there, kept or not.
	found bool
}

// run filters msg.
func (f *filter) run(msg *dns.Msg) error {
	f.rcode = msg.Rcode
	last, err := f.chain(msg.Answer)
	if err != nil {
		return err
	}
	if !f.found {
		f.absence(msg.Ns, last)
		return nil
	}
	f.rcode = dns.RcodeSuccess
	f.clean()
	f.ttl = shortestTTL(f.rrs)
	return nil
}

// chain collects the CNAME records from owner on and the records of the type
// asked at their end, and returns the last name.
func (f *filter) chain(answer []dns.RR) (last string, err error) {
	current := f.owner
	for range maxChain {
		next := ""
		for _, rr := range answer {
			hdr := rr.Header()
			if hdr.Class != dns.ClassINET || !strings.EqualFold(hdr.Name, current) {
				continue
			}
			cname, isCNAME := rr.(*dns.CNAME)
			switch {
			case hdr.Rrtype == f.qtype:
				f.found = true
			case isCNAME && next == "":
				next = dns.CanonicalName(cname.Target)
			default:
				continue
			}
			hdr.Name = current
			f.rrs = append(f.rrs, rr)
		}
		if f.found || next == "" {
			return current, nil
		}
		if err := checkTarget(next); err != nil {
			return "", err
		}
		current = next
	}
	return "", errChain
}

// checkTarget refuses targets of a chain that mean the host or nothing public.
func checkTarget(target string) error {
	name, err := hostname.Parse(target)
	if err != nil {
		return errBadTarget
	}
	if reason, special := egress.SpecialName(name); special {
		return localTargetError{name, reason}
	}
	return nil
}

// absence keeps the SOA that says how long to believe that nothing is there, if
// it is of a zone above the last name.
func (f *filter) absence(ns []dns.RR, last string) {
	for _, rr := range ns {
		soa, ok := rr.(*dns.SOA)
		if !ok || soa.Hdr.Class != dns.ClassINET || !dns.IsSubDomain(soa.Hdr.Name, last) {
			continue
		}
		soa.Hdr.Name = dns.CanonicalName(soa.Hdr.Name)
		f.ns = []dns.RR{soa}
		f.ttl = min(seconds(soa.Hdr.Ttl), seconds(soa.Minttl), maxNegativeTTL)
		if len(f.rrs) > 0 {
			f.ttl = min(f.ttl, shortestTTL(f.rrs))
		}
		return
	}
}

// clean judges the records of the type asked, one by one.
func (f *filter) clean() {
	kept := f.rrs[:0]
	txt := 0
	for _, rr := range f.rrs {
		if len(kept) == maxRecords {
			break
		}
		keep := true
		switch rr := rr.(type) {
		case *dns.A:
			keep = f.address(rr.A.To4())
		case *dns.AAAA:
			keep = f.address(rr.AAAA)
		case *dns.HTTPS:
			keep = f.service(&rr.SVCB)
		case *dns.SVCB:
			keep = f.service(rr)
		case *dns.TXT:
			txt += dns.Len(rr)
			keep = txt <= maxTXTBytes
		}
		if keep {
			kept = append(kept, rr)
		}
	}
	f.rrs = kept
}

// address judges one address of the answer, 4 or 16 bytes.
func (f *filter) address(raw []byte) bool {
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return false
	}
	// No public name has an IPv4-mapped AAAA; it is a way to say 127.0.0.1
	// that filters which look at A records miss.
	if addr.Is4In6() || !f.judge.AllowsAddr(f.host, addr).Allowed() {
		f.removed = append(f.removed, addr)
		return false
	}
	f.addrs = append(f.addrs, addr)
	return true
}

// rebinds reports whether an answer, with the error of its run, is one that leads a name to where it may not go.
func (f *filter) rebinds(err error) bool {
	var target localTargetError
	return errors.As(err, &target) || err == nil && f.addressesGone()
}

// addressesGone reports whether the answer held addresses and none is left.
func (f *filter) addressesGone() bool {
	return (f.qtype == dns.TypeA || f.qtype == dns.TypeAAAA) && len(f.removed) > 0 && len(f.addrs) == 0
}

func shortestTTL(rrs []dns.RR) time.Duration {
	if len(rrs) == 0 {
		return 0
	}
	shortest := uint32(1<<32 - 1)
	for _, rr := range rrs {
		shortest = min(shortest, rr.Header().Ttl)
	}
	return seconds(shortest)
}

// seconds reads a TTL; one with the top bit set is zero (RFC 2181, section 8).
func seconds(ttl uint32) time.Duration {
	if ttl>>31 != 0 {
		return 0
	}
	return time.Duration(ttl) * time.Second
}
