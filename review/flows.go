package review

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
)

const dhcpPort = 67

func oneAddr(a netip.Addr) []netip.Addr { return []netip.Addr{a} }

// flow finds or opens the flow of a packet. up says that the packet goes from the flow's opener.
func (r *reviewer) flow(rec *capture.Record, h *capture.Headers) (id uint32, up, found bool) {
	if h.Transport == capture.TransportUDP && h.Dst.Port() == dhcpPort {
		r.report.Other++ // the stack itself answers, or the guard drops it
		return 0, false, false
	}
	opens := h.Transport == capture.TransportTCP && h.Flags&(capture.SYN|capture.ACK) == capture.SYN
	recent := &r.recent[(h.Src.Port()^h.Dst.Port())%recentFlows]
	if h.Transport == capture.TransportTCP && h.Flags&(capture.SYN|capture.RST) == 0 && !h.Refusal {
		switch {
		case recent.src == h.Src && recent.dst == h.Dst:
			return recent.id, true, true
		case recent.src == h.Dst && recent.dst == h.Src:
			return recent.id, false, true
		}
	}
	id, up, found = r.find(rec, h, opens)
	if found && h.Transport == capture.TransportTCP {
		*recent = recentFlow{src: h.Src, dst: h.Dst, id: id}
		if !up {
			recent.src, recent.dst = recent.dst, recent.src
		}
	}
	return id, up, found
}

// recentFlows is how many connections are found without a look into the table; a power of two.
const recentFlows = 1024

// recentFlow is a TCP connection of which a packet was seen a moment ago.
type recentFlow struct {
	src, dst netip.AddrPort
	id       uint32
}

// find is flow for a packet of no recent connection.
func (r *reviewer) find(rec *capture.Record, h *capture.Headers, opens bool) (id uint32, up, found bool) {
	k := r.table.key(h)
	if h.Refusal { // an error about a packet of ours
		id, found = r.table.live[k]
		if found {
			r.table.row(id).end = rec.Time
			for _, c := range rec.Comments { // the verdict that came with an ICMP error
				r.recorded(id, c)
			}
		}
		return 0, false, false
	}
	if id, found = r.table.live[k]; found && !r.stale(id, rec, h, opens) {
		return id, true, true
	}
	if !opens {
		if id, ok := r.table.live[k.reversed()]; ok {
			id, found = r.reopened(id, rec, h)
			return id, false, found
		}
	}
	return r.begin(k, rec, h, opens)
}

// stale reports whether a packet of a known flow's ends begins another one.
func (r *reviewer) stale(id uint32, rec *capture.Record, h *capture.Headers, opens bool) bool {
	row := r.table.row(id)
	switch {
	case h.Transport != capture.TransportTCP:
		return rec.Time-row.end >= datagramIdle
	case !opens:
		return false
	case r.lenient || row.flags&(inbound|partial|oneSided) != 0:
		return h.Seq != row.isn && !r.stands(id)
	}
	return row.flags&reset != 0
}

// stands reports whether a connection is one that the gateway has not ended: another SYN begins none.
func (r *reviewer) stands(id uint32) bool {
	if p := r.first.live[id]; p != nil {
		return p.live()
	}
	f := r.follows.live[id]
	return f != nil && f.live()
}

// begin opens a flow with its first packet.
func (r *reviewer) begin(k flowKey, rec *capture.Record, h *capture.Headers, opens bool) (id uint32, up, found bool) {
	var flags rowFlags
	up = true
	switch {
	case h.Transport == capture.TransportTCP && !opens:
		flags = partial
		if fromServer(rec, h) {
			k, up = k.reversed(), false
		}
	case h.Transport == capture.TransportPing && !h.Request:
		return 0, false, false // an answer to nothing
	case rec.Direction == capture.ToGuest:
		flags = inbound
	}
	isn := uint32(0)
	if opens {
		isn = h.Seq
	}
	id = r.open(k, rec, flags, isn)
	r.table.row(id).iss = isn + uint32(len(h.Payload)) + 1
	return id, up, true
}

// open adds a flow, in place of one that has the same ends, and has it judged.
func (r *reviewer) open(k flowKey, rec *capture.Record, flags rowFlags, isn uint32) (id uint32) {
	if old, ok := r.table.live[k]; ok {
		r.drop(old)
	}
	id = r.table.open(k, rec.Time, flags)
	r.table.row(id).isn = isn
	if flags&inbound == 0 {
		r.judge(id)
	}
	return id
}

// fromServer says who sent a packet of a connection whose beginning is not in the capture: what the guest
// sends is the guest's, whatever its flags claim. Where no direction was recorded it is a guess: the
// answering side, or the lower port, is the server.
func fromServer(rec *capture.Record, h *capture.Headers) bool {
	if rec.Direction != capture.UnknownDirection {
		return rec.Direction == capture.ToGuest
	}
	return h.Flags&capture.SYN != 0 || h.Src.Port() < h.Dst.Port()
}

// drop forgets what is kept for a flow that another one took the place of.
func (r *reviewer) drop(id uint32) {
	if p := r.first.live[id]; p != nil {
		r.first.settle(id, p, session.Silent)
	}
	r.follows.end(id)
	delete(r.streams, id)
	r.notAgain(id)
	delete(r.later.stray, id)
}

// protos are the transports as sessions know them.
var protos = [...]egress.Proto{
	capture.TransportTCP: egress.TCP, capture.TransportUDP: egress.UDP, capture.TransportPing: egress.ICMP,
}

// judge asks every judge about a new flow.
func (r *reviewer) judge(id uint32) {
	row := r.table.row(id)
	src, dst := r.table.ends(row.key)
	var wait *pending
	for place, j := range r.judges {
		if j == nil {
			continue
		}
		s, step := session.Open(j.rules, j.names, protos[row.key.proto], src, dst)
		switch step.Action {
		case session.ToDNS:
			row.flags |= lookup
			return
		case session.Drop:
			if step.Decided {
				r.verdicts.keep(id, place, s, &step)
			}
			continue
		case session.NeedBytes, session.Refuse, session.Reject, session.NeedNames, session.Wait, session.Dial,
			session.Relay, session.Inspect, session.Continue, session.End:
		}
		if !s.Asks() {
			r.verdicts.keep(id, place, s, &step)
		}
		if step.Action != session.NeedBytes && !isWeb(s, &step) {
			continue
		}
		if wait == nil {
			wait = r.first.unused.pending(row.isn+1, r.lenient)
			wait.asks = s.Asks()
		}
		wait.keepSession(place, s, &step)
	}
	switch {
	case wait == nil:
	case wait.asks:
		r.first.asks(id, wait)
	case row.flags&partial != 0:
		row.flags |= cut // the bytes that decide came before
		r.first.unlearned(id, wait)
	case !slices.Contains(wait.open[:], true):
		r.first.forget(id, wait)
	default:
		r.first.live[id] = wait
	}
}

// isWeb reports whether what follows in a connection are requests that a capture shows.
func isWeb(s *session.Session, step *session.Step) bool {
	return step.Action == session.Inspect && s.Judged().Flow.App == egress.AppHTTP
}

// carry counts a packet and takes its payload.
func (r *reviewer) carry(id uint32, up bool, rec *capture.Record, h *capture.Headers) {
	row := r.table.row(id)
	row.end = rec.Time
	row.packets++
	n := int64(len(h.Payload)) + int64(max(rec.Length-len(rec.Frame), 0))
	if up {
		row.up += n
		if row.key.proto == capture.TransportTCP && row.flags&answered == 0 {
			r.later.unanswered(id, row, h)
		}
	} else {
		row.down += n
	}
	if !up {
		r.answered(id, h)
	}
	if p := r.first.live[id]; p != nil && row.flags&reset != 0 {
		r.first.end(id, p)
	}
	switch {
	case row.flags&lookup != 0:
		r.lookup(id, up, h)
	case up:
		if p := r.first.live[id]; p != nil {
			r.first.said(id, p, h, rec.Length > len(rec.Frame))
		} else if row.flags&(followed|untracked) != 0 {
			r.follows.next(id, h, rec.Length > len(rec.Frame))
		}
	case h.Flags&capture.RST != 0 && (r.lenient || row.flags&reset != 0):
		r.follows.end(id)
	case row.flags&proxied != 0 && len(h.Payload) > 0:
		if p := r.first.live[id]; p != nil && p.asks {
			p.tunnels = bytes.HasPrefix(h.Payload, []byte("HTTP/1.1 200"))
			r.first.proxyResult(id, p, session.More)
		}
	}
}

// answered passes a segment of the gateway's on to whatever follows the
// connection.
func (r *reviewer) answered(id uint32, h *capture.Headers) {
	if p := r.first.live[id]; p != nil {
		opening := p.opening
		if p.answer(h) {
			p.first = p.first[:0]
		}
		if opening && !p.opening {
			r.first.sniff(id, p)
		}
	} else if f := r.follows.live[id]; f != nil {
		f.answer(h)
	}
}
