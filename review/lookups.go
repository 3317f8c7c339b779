package review

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/dnsguard"
)

const (
	// maxLookups bounds the different names of a report; its last row counts all others.
	maxLookups = 100_000
	// maxLate bounds the names beyond it whose verdicts are waited for, maxStreams the connections that a
	// resolver is asked on.
	maxLate    = 4096
	maxStreams = 4096
	// maxStream bounds the bytes of DNS over TCP that wait for the rest of a message.
	maxStream = 64<<10 + 2
	// maxListed bounds the addresses that one row lists.
	maxListed = 16
)

// lookup takes a packet to or from port 53.
func (r *reviewer) lookup(id uint32, up bool, h *capture.Headers) {
	if h.Transport == capture.TransportUDP {
		if len(h.Payload) > 0 {
			r.message(up, h.Payload)
		}
		return
	}
	s := r.streams[id]
	opens := up && h.Flags&(capture.SYN|capture.ACK) == capture.SYN
	if s == nil {
		if len(h.Payload) == 0 && !opens {
			return
		}
		if len(r.streams) >= maxStreams {
			maps.DeleteFunc(r.streams, func(_ uint32, s *dnsStreams) bool { return s.up.closed || s.up.broken })
		}
		if len(r.streams) >= maxStreams {
			clear(r.streams) // their unfinished messages are lost, as with a hole
		}
		s = &dnsStreams{}
		if opens {
			s.up = dnsStream{begun: true, stream: stream{next: h.Seq + 1, lenient: r.lenient}}
		}
		r.streams[id] = s
	}
	way := &s.up
	if !up {
		way = &s.down
		s.up.answer(h)
	}
	for _, msg := range way.takeMessages(h) {
		r.message(up, msg)
	}
}

// message takes one DNS message.
func (r *reviewer) message(up bool, packet []byte) {
	for place, j := range r.judges {
		if j == nil {
			continue
		}
		var seen dnsguard.Replayed
		if up {
			seen = j.names.Question(packet)
		} else {
			var ok bool
			if seen, ok = j.names.Answer(packet); !ok {
				continue
			}
		}
		if place == byLearner {
			if up {
				j.learned.Emit(audit.Event{
					Kind: audit.DNSQuery, Action: seen.Verdict.Action.String(),
					DNS: &audit.DNSDetail{Name: seen.Name.String(), Type: seen.Type},
				})
			}
			continue
		}
		r.names.add(place, up, seen)
	}
}

// dnsStreams are both ways of a DNS connection over TCP.
type dnsStreams struct{ up, down dnsStream }

// dnsStream takes messages out of one way.
type dnsStream struct {
	stream
	begun bool // else it begins with the first bytes that are there
	buf   []byte
}

func (s *dnsStream) takeMessages(h *capture.Headers) [][]byte {
	if !s.begun {
		if len(h.Payload) == 0 {
			return nil
		}
		s.begun, s.stands, s.next = true, true, h.Seq
	}
	before := len(s.buf)
	s.take(h, maxStream-len(s.buf), func(b []byte) int { // where it can't be told, what follows is a hole
		b = b[:min(len(b), maxStream-len(s.buf))]
		s.buf = append(s.buf, b...)
		return len(b)
	})
	if len(s.buf) == before {
		return nil
	}
	var all [][]byte
	for len(s.buf) >= 2 {
		n := int(binary.BigEndian.Uint16(s.buf)) + 2
		if len(s.buf) < n {
			break
		}
		all = append(all, s.buf[2:n])
		s.buf = s.buf[n:]
	}
	switch {
	case len(s.buf) == 0:
		s.buf = nil
	case len(all) > 0: // not for each byte of a message
		s.buf = bytes.Clone(s.buf)
	}
	return all
}

// nameRows gathers the questions by name and type.
type nameRows struct {
	byKey  map[lookupKey]*Lookup
	byName map[string]*named
	order  []*Lookup
	over   *Lookup
	// late are questions for names beyond maxLookups whose verdicts are still coming; beyond counts the
	// conditions that held for those before.
	late   map[lookupKey]*Lookup
	beyond map[Condition]int
}

type lookupKey struct{ name, kind string }

// named is what the rows of one name share: there may be thousands, of as many types, and a comment names no
// type.
type named struct {
	rows     int
	recorded *Verdict
}

func (n *nameRows) init() {
	n.byKey = make(map[lookupKey]*Lookup)
	n.byName = make(map[string]*named)
	n.over = &Lookup{Name: "(others)"}
	n.late = make(map[lookupKey]*Lookup)
	n.beyond = make(map[Condition]int)
}

func (n *nameRows) row(k lookupKey) *Lookup {
	if l := n.byKey[k]; l != nil {
		return l
	}
	if l := n.late[k]; l != nil {
		return l
	}
	l := &Lookup{Name: k.name, Type: k.kind}
	shared := n.byName[k.name]
	if shared == nil {
		shared = &named{}
	}
	if len(n.order) >= maxLookups {
		if len(n.late) >= maxLate {
			n.countLate()
		}
		n.late[k] = l
	} else {
		n.byKey[k] = l
		n.order = append(n.order, l)
	}
	shared.rows++
	n.byName[k.name] = shared
	return l
}

// countLate counts what names beyond the bound are, and forgets them.
func (n *nameRows) countLate() {
	for k, l := range n.late {
		l.Recorded = n.byName[k.name].recorded
		for _, c := range conditions() {
			if holds(c, &l.Verdict, l.Against, l.Recorded) {
				n.beyond[c]++
			}
		}
		n.over.Count += l.Count
		n.over.Verdict = l.Verdict
		if n.byName[k.name].rows--; n.byName[k.name].rows == 0 {
			delete(n.byName, k.name)
		}
	}
	clear(n.late)
}

func (n *nameRows) add(place int, up bool, seen dnsguard.Replayed) {
	name := seen.Name.String()
	if seen.Name.IsZero() {
		name = "(no host name)"
	}
	l := n.row(lookupKey{name, seen.Type})
	v := verdictOf(seen.Verdict)
	if place == byAgainst {
		l.Against = &v
		return
	}
	if up {
		l.Count++
	}
	if !up || l.Verdict.Action == "" {
		l.Verdict = v // the answer says more than the question
	}
	l.Answers = merged(l.Answers, seen.Addrs)
	l.Removed = merged(l.Removed, seen.Removed)
}

func merged(list, more []netip.Addr) []netip.Addr {
	for _, a := range more {
		if len(list) < maxListed && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// recorded keeps the verdict of a comment on a question.
func (n *nameRows) recorded(v capture.Verdict) {
	if shared := n.byName[v.Name]; shared != nil {
		recorded := recordedVerdict(&v)
		shared.recorded = &recorded
	}
}

func (n *nameRows) rows() []Lookup {
	n.countLate()
	all := make([]Lookup, 0, len(n.order)+1)
	for _, l := range n.order {
		l.Recorded = n.byName[l.Name].recorded
		all = append(all, *l)
	}
	slices.SortStableFunc(all, func(a, b Lookup) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Type, b.Type))
	})
	if n.over.Count > 0 {
		all = append(all, *n.over)
	}
	return all
}
