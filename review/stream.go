package review

import (
	"bytes"
	"slices"
)

const (
	// maxEarly bounds the segments of one connection that came before their turn, maxEarlyBytes what is in
	// them: some come twice.
	maxEarly      = 64
	maxEarlyBytes = 2 * maxFirst
)

// stream puts a client's segments in order. They may come late, twice or overlapping: the first copy of a
// byte counts, as in the gateway's stack.
type stream struct {
	next    uint32 // the sequence number of the next byte
	early   []segment
	waiting int // bytes of early
}

type segment struct {
	seq  uint32
	data []byte
}

// take hands what comes next to add, which says how much of it was read: the rest is gone. Only the next
// room bytes are of use. false means that the client plays with more holes than are kept.
func (s *stream) take(seq uint32, data []byte, room int, add func([]byte) int) bool {
	if ahead := int32(seq - s.next); ahead > 0 {
		room -= int(ahead)
		if room <= 0 {
			return true // what decides ends before it
		}
		data = data[:min(len(data), room)]
		if s.waiting += len(data); len(s.early) == maxEarly || s.waiting > maxEarlyBytes {
			return false
		}
		s.early = append(s.early, segment{seq, bytes.Clone(data)})
		return true
	}
	s.add(seq, data, add)
	for again := len(s.early) > 0; again; {
		again = false
		s.early = slices.DeleteFunc(s.early, func(e segment) bool {
			if int32(e.seq-s.next) > 0 {
				return false
			}
			s.add(e.seq, e.data, add)
			s.waiting -= len(e.data)
			again = true
			return true
		})
	}
	return true
}

// add hands on what is new of a segment that does not begin behind next.
func (s *stream) add(seq uint32, data []byte, add func([]byte) int) {
	if old := int(s.next - seq); old < len(data) {
		s.next += uint32(add(data[old:]))
	}
}
