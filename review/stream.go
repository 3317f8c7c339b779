package review

import (
	"bytes"
	"container/heap"

	"github.com/msb-project/msb/capture"
)

const (
	// maxEarly bounds the segments of one connection that came before their turn, maxEarlyBytes what is in
	// them: some come twice.
	maxEarly      = 64
	maxEarlyBytes = 2 * maxFirst
)

// stream takes the segments of a client as the gateway's stack does (gVisor, transport/tcp: connect.go and rcv.go), so that
// it has the same bytes whatever a client without a stack sends: late, twice, overlapping, or where they don't count.
type stream struct {
	next uint32 // RCV.NXT
	// lenient takes what comes before the gateway's SYN was seen: the capture knows no directions.
	lenient  bool
	answered bool   // the gateway's SYN was seen
	stands   bool   // the client has acknowledged it
	closed   bool   // the client's FIN has had its turn
	broken   bool   // the client has reset the connection, or broken its handshake
	over     bool   // the gateway has ended its side
	edge     uint32 // of the window that the gateway announced last, once it has answered
	window   uint32 // its size
	scale    uint8
	early    earlySegments
	waiting  int // bytes of early
	// opening means that bytes which came with the end of the handshake, and those up to openEnd that followed them,
	// are not acknowledged: the stack puts them behind others that have come (connect.go, synRcvdState), and the
	// capture doesn't show behind which.
	opening bool
	openEnd uint32
	// unclear says that it can't be told whether the handshake was broken.
	unclear bool
}

// segment is one that came before its turn.
type segment struct {
	seq    uint32
	length int
	data   []byte // as much of it as is of use
	fin    bool
}

// earlySegments is a heap as the stack's, which decides between segments that begin at the same place.
type earlySegments []segment

var _ heap.Interface = (*earlySegments)(nil)

func (e earlySegments) Len() int           { return len(e) }
func (e earlySegments) Less(i, j int) bool { return before(e[i].seq, e[j].seq) }
func (e earlySegments) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

func (e *earlySegments) Push(x any) {
	if s, ok := x.(segment); ok {
		*e = append(*e, s)
	}
}

func (e *earlySegments) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = segment{}
	*e = (*e)[:len(*e)-1]
	return last
}

// before compares sequence numbers.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// answer takes a segment of the gateway's. It reports whether this is its first SYN: nothing counts that was said before.
func (s *stream) answer(h *capture.Headers) (first bool) {
	s.over = s.over || h.Flags&(capture.RST|capture.FIN) != 0
	switch {
	case h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK:
		if first = !s.answered; first {
			*s = stream{next: h.Ack, answered: true, scale: h.Scale, window: uint32(h.Window), unclear: s.unclear}
			s.edge = h.Ack + s.window
		}
	case h.Flags&capture.ACK != 0 && s.answered:
		// A unit of the scale is held back of what is announced (netstack/tcp_window.go).
		s.window = (uint32(h.Window) + 1) << s.scale
		s.edge = h.Ack + s.window
		s.opening = s.opening && before(h.Ack, s.openEnd)
	}
	return first
}

// live reports whether a SYN is taken for a late one.
func (s *stream) live() bool { return s.answered && s.stands && !s.closed && !s.over }

// take takes a segment of the client's and hands the bytes whose turn it is to add, which says how much of them was read:
// the rest is gone. Only the next room bytes are of use. false means that it can't be told what the stack took.
func (s *stream) take(h *capture.Headers, room int, add func([]byte) int) (clear bool) {
	opens := !s.stands
	switch {
	case s.broken, s.closed && !s.opening:
		return true
	case opens && h.Flags&(capture.RST|capture.SYN) != 0:
		s.breakHandshake(h)
		return true
	case h.Flags&capture.RST != 0:
		s.broken = h.Seq == s.next // RFC 5961, section 3.2
		return !s.opening
	case h.Flags&capture.SYN != 0, h.Flags&capture.ACK == 0: // RFC 5961, section 4.2; RFC 9293, section 3.10.7.4
		return true
	case opens && !s.established(h):
		return true
	}
	one := segment{seq: h.Seq, length: len(h.Payload), data: h.Payload, fin: h.Flags&capture.FIN != 0}
	if clear = s.clearOrder(&one, opens); s.closed {
		return clear
	}
	switch ahead := int(int32(one.seq - s.next)); {
	case one.length == 0 && !one.fin, one.length > 0 && ahead+one.length <= 0, one.length == 0 && ahead < 0:
		return clear
	case ahead > 0:
		return s.keep(one, room-ahead) && clear
	}
	s.consume(&one, add)
	s.catchUp(add)
	return clear
}

// clearOrder reports whether the stack takes a segment in its turn, after those before it.
func (s *stream) clearOrder(one *segment, opens bool) bool {
	says := one.length > 0 || one.fin
	switch {
	case s.unclear:
		return false
	case opens && s.answered && one.length > 0:
		s.opening, s.openEnd = true, one.seq+uint32(one.length)
		return !one.fin
	case opens && s.answered:
		return !one.fin
	case s.opening && says && one.seq != s.openEnd:
		return false
	}
	s.openEnd += uint32(one.length)
	return true
}

// breakHandshake takes a reset or another SYN during the handshake, which ends it in the window (connect.go, synRcvdState;
// before it begins, netstack's giveUp). The stack may have begun it before the capture shows that.
func (s *stream) breakHandshake(h *capture.Headers) {
	const window = 1 << 16 // of any handshake
	switch inside := h.Seq-s.next < window; {
	case s.answered:
		s.broken = s.inWindow(h.Seq)
	case h.Flags&capture.RST != 0 && h.Seq == s.next:
		s.broken = true
	case !s.lenient && inside:
		s.unclear = true
	}
}

// inWindow is for the handshake, of which the window does not move.
func (s *stream) inWindow(seq uint32) bool { return !before(seq, s.next) && before(seq, s.edge) }

// established tells whether a segment completes the handshake: in a forwarder any number that it acknowledges does
// (connect.go, synRcvdState without a listener).
func (s *stream) established(h *capture.Headers) bool {
	if s.answered {
		s.stands = s.inWindow(h.Seq)
	} else {
		s.stands = s.lenient
	}
	return s.stands
}

// keep keeps a segment that came before its turn. A segment that begins behind the announced window may have been
// taken or not: the stack may have moved the window meanwhile, by its own size at most.
func (s *stream) keep(one segment, room int) bool {
	if s.answered && before(s.edge, one.seq) {
		return before(s.next+2*s.window, one.seq)
	}
	if one.data = one.data[:min(len(one.data), max(room, 0))]; len(one.data) == 0 && len(s.early) == maxEarly {
		return true // what decides ends before it
	}
	one.data = bytes.Clone(one.data)
	if s.waiting += len(one.data); len(s.early) == maxEarly || s.waiting > maxEarlyBytes {
		return false
	}
	heap.Push(&s.early, one)
	return true
}

// catchUp takes the segments whose turn has come. One that is only a FIN is lost where it came before its turn: the stack
// takes it for one that was acknowledged.
func (s *stream) catchUp(add func([]byte) int) {
	for len(s.early) > 0 {
		one := s.early[0]
		if old := !before(s.next, one.seq+uint32(one.length)); !old {
			if before(s.next, one.seq) {
				return
			}
			s.consume(&one, add)
		}
		if !s.closed {
			heap.Pop(&s.early)
			s.waiting -= len(one.data)
		}
	}
}

// consume takes a segment that does not begin behind next.
func (s *stream) consume(one *segment, add func([]byte) int) {
	if old := int(s.next - one.seq); old < len(one.data) {
		s.next += uint32(add(one.data[old:]))
	}
	if one.fin && s.next == one.seq+uint32(one.length) {
		s.next++
		s.closed, s.early, s.waiting = true, nil, 0
	}
}
