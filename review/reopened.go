package review

import (
	"slices"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/egress/session"
)

// maxAgain bounds the SYNs that wait for their answers.
const maxAgain = 4096

// laterSYN is a SYN on a connection that has been answered. The gateway's stack takes it for a late one unless the
// connection is over, of which a capture need not show everything: whether it opens another one, only its answer tells.
type laterSYN struct {
	seq, length uint32
	comments    []string // about the connection that it opens, if it does
}

// mayOpenAgain reports whether a segment of the client's is a SYN whose answer tells what it is. During the handshake it
// opens nothing.
func (r *reviewer) mayOpenAgain(id uint32, h *capture.Headers) bool {
	row := r.table.row(id)
	if h.Transport != capture.TransportTCP || h.Flags&(capture.SYN|capture.ACK) != capture.SYN || row.flags&(answered|inbound) != answered {
		return false
	}
	if p := r.pending[id]; p != nil {
		return p.stands
	}
	f := r.follows.live[id]
	return f == nil || f.stands
}

// openedAgain keeps a SYN until its answer.
func (r *reviewer) openedAgain(id uint32, rec *capture.Record, h *capture.Headers) {
	r.notAgain(id)
	if len(r.table.again) < maxAgain {
		r.table.again[id] = laterSYN{h.Seq, uint32(len(h.Payload)) + 1, slices.Clone(rec.Comments)}
	}
}

// notAgain gives the comments on a SYN that opened nothing to the connection that it came on.
func (r *reviewer) notAgain(id uint32) {
	syn, ok := r.table.again[id]
	delete(r.table.again, id)
	if !ok {
		return
	}
	for _, c := range syn.comments {
		r.recorded(id, c)
	}
}

// reopened takes a segment of the gateway's. It returns its connection, which is another than id where the segment answers
// a SYN that opened one.
func (r *reviewer) reopened(id uint32, rec *capture.Record, h *capture.Headers) uint32 {
	row := r.table.row(id)
	if r.lenient || row.flags&inbound != 0 {
		return id
	}
	syn, again := r.table.again[id]
	standing := row.flags&answered != 0
	switch {
	case h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK:
		answers := again && syn.seq == h.Ack-1
		if row.flags&reset != 0 || standing && (row.iss != h.Seq || answers && syn.seq != row.isn) {
			id = r.beginAgain(id, rec, h.Ack-1, answers)
			row = r.table.row(id)
		}
		row.flags, row.iss = row.flags&^oneSided|answered, h.Seq
		delete(r.table.stray, id)
	case h.Flags&capture.RST == 0:
	case standing && again && h.Seq == 0 && h.Ack == syn.seq+syn.length: // RFC 9293, section 3.5.2: no connection has the SYN's ends
		id = r.beginAgain(id, rec, syn.seq, true)
		r.table.row(id).flags |= reset
	case !standing && (h.Seq != 0 || h.Ack != row.iss):
	case !standing && r.table.stray[id] > 0: // a segment before the SYN's answer
		r.table.stray[id]--
	default:
		row.flags |= reset
	}
	return id
}

// unanswered takes a segment of a client whose SYN was not answered.
func (r *reviewer) unanswered(id uint32, h *capture.Headers) {
	row := r.table.row(id)
	end := h.Seq + uint32(len(h.Payload)) + uint32(h.Flags&capture.FIN) // which is 1
	switch {
	case h.Flags&(capture.SYN|capture.RST) != 0:
	case h.Flags&capture.ACK == 0 && end == row.iss && len(r.table.stray) < maxAgain:
		r.table.stray[id]++
	case h.Flags&capture.ACK != 0 && len(h.Payload) > 0:
		row.flags |= oneSided
	}
}

// beginAgain opens the connection of a later SYN in place of the one before. known says that it is the SYN that was kept.
func (r *reviewer) beginAgain(old uint32, rec *capture.Record, isn uint32, known bool) (id uint32) {
	syn := r.table.again[old]
	if known {
		delete(r.table.again, old)
	} else {
		r.notAgain(old)
	}
	id = r.open(r.table.row(old).key, rec, 0, isn)
	if known {
		r.table.row(id).packets++
		for _, c := range syn.comments {
			r.recorded(id, c)
		}
	}
	return id
}

// resetBy ends the wait for the client's bytes on a connection that the gateway has reset.
func (r *reviewer) resetBy(id uint32) {
	p := r.pending[id]
	switch {
	case p == nil:
	case r.expired(p):
		r.expire(id, p)
	default:
		r.settle(id, p, session.More)
	}
}
