package review

import (
	"slices"

	"github.com/msb-project/msb/capture"
)

const (
	// maxAgain bounds the SYNs that wait for their answers, and the connections of which stray resets are expected.
	maxAgain = 4096
	// maxStray bounds the stray resets that are expected of one connection.
	maxStray = 64
)

// laterSYNs are the SYNs on connections that may be over.
type laterSYNs struct {
	kept map[uint32]laterSYN
	// stray are the resets that answer segments which came before a SYN's answer. They may come behind it.
	stray map[uint32][]strayReset
}

// strayReset are the numbers of a reset that ends no connection (RFC 9293, section 3.5.2).
type strayReset struct{ seq, ack uint32 }

// laterSYN is a SYN on a connection that has been answered. The gateway's stack takes it for a late one unless the
// connection is over, which a capture need not show: only the answer shows whether the SYN opens another connection.
type laterSYN struct {
	seq, length uint32
	comments    []string // about the connection that it opens, if it does
}

// keep keeps a SYN until its answer, if there is room.
func (l *laterSYNs) keep(id uint32, rec *capture.Record, h *capture.Headers) (kept bool) {
	if len(l.kept) >= maxAgain {
		return false
	}
	l.kept[id] = laterSYN{h.Seq, uint32(len(h.Payload)) + 1, slices.Clone(rec.Comments)}
	return true
}

// take forgets the SYN on a connection and returns its comments.
func (l *laterSYNs) take(id uint32) (comments []string) {
	comments = l.kept[id].comments
	delete(l.kept, id)
	return comments
}

// opens reports whether a segment of the gateway's answers a SYN that opened another connection, whose number is isn. known
// says that it is the SYN that was kept.
func (l *laterSYNs) opens(id uint32, row *row, h *capture.Headers) (isn uint32, known, opens bool) {
	syn, again := l.kept[id]
	standing := row.flags&answered != 0
	if h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK {
		known = again && syn.seq == h.Ack-1
		return h.Ack - 1, known, row.flags&reset != 0 || standing && (row.iss != h.Seq || known && syn.seq != row.isn)
	}
	// RFC 9293, section 3.5.2: no connection has the SYN's ends
	return syn.seq, true, h.Flags&capture.RST != 0 && standing && again && h.Seq == 0 && h.Ack == syn.seq+syn.length
}

// isStray reports whether a reset of the gateway's is about another segment than those of the connection.
func (l *laterSYNs) isStray(id uint32, h *capture.Headers) bool {
	i := slices.Index(l.stray[id], strayReset{h.Seq, h.Ack})
	if i < 0 || h.Flags&capture.RST == 0 {
		return false
	}
	l.stray[id] = slices.Delete(l.stray[id], i, i+1)
	return true
}

// unanswered takes a segment of a client whose SYN was not answered.
func (l *laterSYNs) unanswered(id uint32, row *row, h *capture.Headers) {
	if h.Flags&(capture.SYN|capture.RST) != 0 {
		return
	}
	answer := strayReset{ack: h.Seq + uint32(len(h.Payload)) + uint32(h.Flags&capture.FIN)} // which is 1
	if h.Flags&capture.ACK != 0 {
		answer = strayReset{seq: h.Ack}
		if len(h.Payload) > 0 {
			row.flags |= oneSided
		}
	}
	if n := len(l.stray[id]); n < maxStray && (n > 0 || len(l.stray) < maxAgain) {
		l.stray[id] = append(l.stray[id], answer)
	}
}

// mayOpenAgain reports whether a segment of the client's is a SYN whose answer tells what it is. During the handshake it
// opens nothing.
func (r *reviewer) mayOpenAgain(id uint32, h *capture.Headers) bool {
	row := r.table.row(id)
	if h.Transport != capture.TransportTCP || h.Flags&(capture.SYN|capture.ACK) != capture.SYN || row.flags&(answered|inbound) != answered {
		return false
	}
	if p := r.first.live[id]; p != nil {
		return p.stands
	}
	f := r.follows.live[id]
	return f == nil || f.stands
}

// notAgain gives the comments on a SYN that opened nothing to the connection that it came on.
func (r *reviewer) notAgain(id uint32) {
	for _, c := range r.later.take(id) {
		r.recorded(id, c)
	}
}

// reopened takes a segment of the gateway's. It returns its connection, which is another than id where the segment answers
// a SYN that opened one; false where it is no connection's.
func (r *reviewer) reopened(id uint32, rec *capture.Record, h *capture.Headers) (uint32, bool) {
	row := r.table.row(id)
	if r.lenient || row.flags&inbound != 0 {
		return id, true
	}
	isn, known, opens := r.later.opens(id, row, h)
	switch {
	case opens:
		id = r.beginAgain(id, rec, isn, known)
		row = r.table.row(id)
	case r.later.isStray(id, h):
		return id, false
	}
	switch {
	case h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK:
		row.flags, row.iss = row.flags&^oneSided|answered, h.Seq
	case h.Flags&capture.RST != 0 && (opens || row.flags&answered != 0 || h.Seq == 0 && h.Ack == row.iss):
		row.flags |= reset
	}
	return id, true
}

// beginAgain opens the connection of a later SYN in place of the one before. known says that it is the SYN that was kept.
func (r *reviewer) beginAgain(old uint32, rec *capture.Record, isn uint32, known bool) (id uint32) {
	var comments []string
	if known {
		comments = r.later.take(old)
	} else {
		r.notAgain(old)
	}
	id = r.open(r.table.row(old).key, rec, 0, isn)
	if known {
		r.table.row(old).packets--
		r.table.row(id).packets++
	}
	for _, c := range comments {
		r.recorded(id, c)
	}
	return id
}
