package dnsguard

import (
	"strings"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/dnsguard/wire"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// subject is what a question is about, once it passed every check that needs no
// upstream.
type subject struct {
	// name is asked for; host is judged and gets the pins. They differ for
	// "_sip._tcp.example.com", which goes with example.com.
	name, host hostname.Name
	verdict    egress.Verdict
}

// answerable reports whether questions of this type are answered. The others
// are zone transfers, amplifiers (ANY), carriers of arbitrary bytes (NULL) and
// types that no client of ours needs.
func answerable(qtype uint16) bool {
	switch qtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeHTTPS, dns.TypeSVCB, dns.TypeMX,
		dns.TypeSRV, dns.TypeTXT, dns.TypePTR, dns.TypeNS, dns.TypeSOA:
		return true
	}
	return false
}

// local answers what needs no upstream; a nil reply means that subj is to be
// looked up.
func (g *Guard) local(e *epoch, q *wire.Question) (r *reply, subj subject) {
	d := decide(e.judge, e, q)
	switch {
	case d.malformed != "":
		return g.refuseQuery(q, d.ede, d.malformed), subject{}
	case d.disposition == refuse:
		return g.refuseName(q, d.subject), subject{}
	case d.disposition == local && len(d.owners) > 0:
		return g.answerReverse(q, d.name, d.owners), subject{}
	case d.disposition == local:
		return g.answerMapped(e, q, d.subject), subject{}
	case q.Type == dns.TypeAAAA && !g.hasIPv6():
		return g.answerEmpty(q, d.subject), d.subject
	}
	return nil, d.subject
}

// questionName returns the name asked for, and false if it is no host name. A
// name that normalises to another one is none: the name judged must be the name
// asked upstream.
func questionName(q *wire.Question) (hostname.Name, bool) {
	text, ok := q.Text()
	if !ok {
		return hostname.Name{}, false
	}
	name, err := hostname.Parse(text)
	return name, err == nil && name.String() == text
}

// judgeName asks the judge about name, and about the host of a service name if
// name itself isn't allowed.
func judgeName(judge Judge, name hostname.Name, qtype uint16) subject {
	verdict := judgeHost(judge, name)
	if !verdict.Allowed() {
		if host := serviceHost(name, qtype); !host.IsZero() {
			if v := judgeHost(judge, host); v.Allowed() {
				return subject{name, host, v}
			}
		}
	}
	return subject{name, name, verdict}
}

// judgeHost is the judge's verdict, except that a special name is always
// refused: no rule opens it.
func judgeHost(judge Judge, name hostname.Name) egress.Verdict {
	if reason, special := egress.SpecialName(name); special {
		return egress.Verdict{Action: egress.Deny, Reason: reason, Name: name}
	}
	return judge.DecideName(name)
}

// serviceHost returns the host behind at most two service labels, such as
// "_8443._https." or "_sip._tcp.", where the type has such; else the zero Name.
func serviceHost(name hostname.Name, qtype uint16) hostname.Name {
	if qtype != dns.TypeSRV && qtype != dns.TypeSVCB && qtype != dns.TypeHTTPS {
		return hostname.Name{}
	}
	host := name
	for range 2 {
		// A service name has at most 15 characters (RFC 6335, section 5.1).
		label, _, _ := strings.Cut(host.String(), ".")
		if !strings.HasPrefix(label, "_") || len(label) > 16 {
			break
		}
		host = host.Parent()
	}
	if host == name || strings.HasPrefix(host.String(), "_") {
		return hostname.Name{}
	}
	return host
}
