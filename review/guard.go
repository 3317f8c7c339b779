package review

import (
	"slices"
	"strconv"
	"strings"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	// dropPrefix begins the gateway's comment on a frame that its guard threw away.
	dropPrefix = "msb: dropped by the frame guard: "
	// maxReasons bounds the reasons that comments give: they are the text of whoever made the capture.
	maxReasons = 64
	// leastHead is how much of a cut frame the guard must see to judge it.
	leastHead = 128
)

// ordinary is the reason of multicast that every guest sends: the report counts it and lists none.
var ordinary = string(frameguard.DropMulticast.Reason())

// frameGuard finds the frames that the gateway's frame guard throws away: in a gateway's own capture by its
// comments, in others by asking the guard.
type frameGuard struct {
	offline *frameguard.Offline
	// annotated says that the file at hand has a gateway's comments: it says what was dropped.
	annotated bool
	// opener is the MAC of whoever opens the first connection, if the capture knows no directions; zero
	// until then.
	opener [6]byte
	// padded is a cut frame with zeros where its payload was.
	padded []byte
}

// readComments notes a gateway's comments. reason is what one of them says about the frame's end.
func (g *frameGuard) readComments(comments []string) (reason string, dropped bool) {
	for _, c := range comments {
		if reason, dropped = strings.CutPrefix(c, dropPrefix); dropped {
			g.annotated = true
			return reason, true
		}
		if !g.annotated {
			_, verdict := capture.ParseVerdict(c)
			g.annotated = verdict || capture.ParseLostVerdicts(c) > 0
		}
	}
	return "", false
}

// dropReason says why the guard would throw a frame away, "" for one that passes or that is not the guest's.
func (g *frameGuard) dropReason(rec *capture.Record, h *capture.Headers, decoded bool) frameguard.Reason {
	if rec.Direction == capture.ToGuest {
		g.offline.Sent(rec.Frame)
		return ""
	}
	if g.annotated || rec.Direction == capture.UnknownDirection && !g.fromGuest(rec, h, decoded) {
		return ""
	}
	frame := rec.Frame
	if rec.Length > len(frame) { // cut by who made the capture: its lengths are no lies
		if len(frame) < leastHead || rec.Length > netstack.MaxFrame {
			return ""
		}
		g.padded = append(g.padded[:0], frame...)
		frame = slices.Grow(g.padded, rec.Length-len(frame))[:rec.Length]
	}
	return g.offline.Check(frame, rec.Length <= len(rec.Frame))
}

// fromGuest guesses who sent a frame of a capture without directions: on msb's link it is the one who isn't
// the gateway, elsewhere whoever opened the first connection.
func (g *frameGuard) fromGuest(rec *capture.Record, h *capture.Headers, decoded bool) bool {
	if to, from := g.offline.NamesGateway(rec.Frame); to || from {
		return to
	}
	if len(rec.Frame) < 12 {
		return false
	}
	sender := [6]byte(rec.Frame[6:12])
	if g.opener == [6]byte{} && decoded && rec.Frame[0]&1 == 0 && begins(h) {
		g.opener = sender
	}
	return sender == g.opener
}

// begins reports whether a packet begins a flow, as far as it can be told by itself.
func begins(h *capture.Headers) bool {
	switch h.Transport {
	case capture.TransportTCP:
		return h.Flags&(capture.SYN|capture.ACK) == capture.SYN
	case capture.TransportUDP:
		return h.Dst.Port() < h.Src.Port()
	case capture.TransportPing:
		return h.Request
	case capture.TransportNone:
	}
	return false
}

// throwAway counts a frame that the guard would throw away.
func (r *Report) throwAway(reason frameguard.Reason) {
	if reason == frameguard.DropQuiet.Reason() { // ordinary, and nobody misses it
		r.Other++
		return
	}
	if r.Guarded == nil {
		r.Guarded = make(map[string]int64)
	}
	r.Guarded[string(reason)]++
}

// dropped counts a frame that a recording gateway threw away.
func (r *Report) dropped(reason string) {
	if _, known := r.Dropped[reason]; !known && len(r.Dropped) >= maxReasons {
		reason = "(others)"
	}
	r.Dropped[reason]++
}

// guardedText lists what the guard would throw away, the most frequent first.
func (r *Report) guardedText() string {
	reasons := make([]string, 0, len(r.Guarded))
	total := int64(0)
	for reason, n := range r.Guarded {
		if reason == ordinary {
			continue
		}
		reasons = append(reasons, reason)
		total += n
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if n := compare(r.Guarded[b], r.Guarded[a]); n != 0 {
			return n
		}
		return compare(a, b)
	})
	for i, reason := range reasons {
		reasons[i] = reason + " " + strconv.FormatInt(r.Guarded[reason], 10)
	}
	if total == 0 {
		return ""
	}
	return strconv.FormatInt(total, 10) + " frames would be thrown away by the frame guard: " + strings.Join(reasons, ", ")
}
