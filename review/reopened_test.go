package review_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/review"
)

// TestI16_ResetConnectionsAreOpenedAgain has a client use the ends of a connection again, with the same sequence numbers
// too. Whether a SYN opens another connection is as the gateway answers it.
func TestI16_ResetConnectionsAreOpenedAgain(t *testing.T) {
	t.Parallel()
	const (
		port      = 40000
		open      = "GET /open/1" + goodHost + "\r\n"
		shut      = "GET /shut" + goodHost + "\r\n"
		isn       = 999
		rst, rack = capture.RST, capture.RST | capture.ACK

		ackOnly, synAck = capture.ACK, capture.SYN | capture.ACK
	)
	up := func(flags byte, seq uint32, text string) []byte { return segment(port, flags, seq, text) }
	down := func(flags byte, seq, ack uint32) []byte {
		f := answered(segment(port, flags, seq, ""))
		binary.BigEndian.PutUint32(f[14+20+8:], ack)
		return f
	}
	numbered := func(f []byte, ack uint32) []byte { // a client's, for another number of the gateway's
		binary.BigEndian.PutUint32(f[14+20+8:], ack)
		return f
	}
	again := [][]byte{down(synAck, 7000, isn+1), numbered(up(ackOnly, isn+1, shut), 7001)}
	first := [][]byte{up(capture.SYN, isn, ""), down(synAck, 0, isn+1), up(ackOnly, isn+1, open)}
	next := uint32(isn + 1 + len(open))
	both, one := []string{"1 GET /open/1 allow", "2 GET /shut deny"}, []string{"1 GET /open/1 allow", "1 GET /shut deny"}
	for name, c := range map[string]struct {
		frames [][]byte
		flows  int
		want   []string
	}{
		"behind the gateway's reset": {slices.Concat(first, [][]byte{down(rst, 1, 0), up(capture.SYN, isn, "")}, again), 2, both},
		"before the gateway's reset is seen": {
			slices.Concat(first, [][]byte{up(capture.SYN, isn, ""), down(rst, 1, 0)}, again), 2, both,
		},
		"behind the client's reset": {slices.Concat(first, [][]byte{up(rst, next, ""), up(capture.SYN, isn, "")}, again), 2, both},
		"with another number, refused": {
			slices.Concat(first, [][]byte{up(rst, next, ""), up(capture.SYN, 5000, "xx"), down(rack, 0, 5003)}), 2, []string{"1 GET /open/1 allow"},
		},
		"in a connection that stands": {
			slices.Concat(first, [][]byte{up(capture.SYN, isn, ""), down(ackOnly, 1, next), up(ackOnly, next, shut)}), 1, one,
		},
		"sent again during the handshake": {
			[][]byte{first[0], first[0], first[1], up(capture.SYN, isn-100, ""), first[1], first[2], up(ackOnly, next, shut)}, 1, one,
		},
		"another in the window of the handshake": {[][]byte{first[0], first[1], up(capture.SYN, isn+5, ""), down(rack, 0, isn+6), first[2]}, 1, nil},
		"a reset in the window of the handshake": {[][]byte{first[0], first[1], up(rst, isn+5, ""), first[2]}, 1, nil},
		"a reset outside of it":                  {[][]byte{first[0], first[1], up(rst, isn, ""), first[2]}, 1, []string{"1 GET /open/1 allow"}},
		"a stray segment before the answer": {
			[][]byte{first[0], up(ackOnly, 1, "x"), down(rst, 1, 0), first[1], first[2]}, 1, []string{"1 GET /open/1 allow"},
		},
		"resets of stray segments behind the answer": {
			[][]byte{first[0], up(ackOnly, 1, "x"), up(0, 70000, "xx"), first[1], down(rack, 0, 70002), down(rst, 1, 0), first[2]},
			1, []string{"1 GET /open/1 allow"},
		},
	} {
		l := newLink()
		for _, f := range c.frames {
			l.w.Packet(directionOf(f), f, "")
		}
		r := l.review(t)
		var got []string
		for _, q := range r.Requests {
			got = append(got, fmt.Sprintf("%d %s %s %s", q.Flow, q.Method, q.Path, q.Verdict.Action))
		}
		if !slices.Equal(got, c.want) || r.Len() != c.flows {
			t.Errorf("%s: %q in %d flows, want %q in %d", name, got, r.Len(), c.want, c.flows)
		}
	}
}

// directionOf goes by the gateway's card.
func directionOf(frame []byte) capture.Direction {
	if frame[0] == 0x02 && frame[1] == 0x6d {
		return capture.FromGuest
	}
	return capture.ToGuest
}

// TestI16_CommentsFollowTheirConnection: the verdict on a SYN is that of the connection that it opens.
func TestI16_CommentsFollowTheirConnection(t *testing.T) {
	t.Parallel()
	const denied, allowed = "msb flow=2 action=deny reason=no_rule", "msb flow=1 action=allow reason=rule"
	for name, want := range map[string][]string{
		"it opens one": {"allow", "deny"}, "it opens none": {"deny"}, // a later one on the same connection
		"another SYN follows": {"deny"}, "another SYN follows and opens one": {"deny", ""},
	} {
		opens := strings.HasSuffix(name, "opens one")
		l := newLink()
		l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, 999, ""), allowed)
		l.w.Packet(capture.ToGuest, accepts(80, 40000, 999), "")
		l.w.Packet(capture.FromGuest, segment(40000, capture.ACK, 1000, ""), "")
		l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, 5000, ""), denied)
		last := uint32(5000)
		if strings.HasPrefix(name, "another") {
			last = 7000
			l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, last, ""), "")
		}
		if opens {
			f := answered(segment(40000, capture.RST|capture.ACK, 0, ""))
			binary.BigEndian.PutUint32(f[14+20+8:], last+1)
			l.w.Packet(capture.ToGuest, f, "")
		}
		var got []string
		for f := range l.review(t).Flows() {
			action := ""
			if f.Recorded != nil {
				action = f.Recorded.Action
			}
			got = append(got, action)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestI16_StraySegmentsOpenNothing: one that comes before the answer to a SYN is dropped by the gateway, whose answer then begins the
// connection. A later SYN opens another one where the gateway answers that.
func TestI16_StraySegmentsOpenNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]int64{"": {3}, "stray": {4}, "answered": {2, 2}, "stray, answered": {3, 2}} {
		l := newLink()
		send := func(d capture.Direction, f []byte) { l.w.Packet(d, f, "") }
		send(capture.FromGuest, segmentTo(9, 40000, capture.SYN, 999, ""))
		if strings.HasPrefix(name, "stray") {
			send(capture.FromGuest, segmentTo(9, 40000, capture.ACK, 1000, "x"))
		}
		send(capture.ToGuest, accepts(9, 40000, 999))
		send(capture.FromGuest, segmentTo(9, 40000, capture.SYN, 5999, ""))
		if strings.HasSuffix(name, "answered") {
			f := accepts(9, 40000, 5999)
			binary.BigEndian.PutUint32(f[14+20+4:], 7000)
			send(capture.ToGuest, f)
		}
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		var packets []int64
		for f := range read(t, l.out.Bytes(), review.Options{Policy: policy(t, "[egress]\ndefault = \"public\"\n")}).Flows() {
			packets = append(packets, f.Packets)
		}
		if !slices.Equal(packets, want) {
			t.Errorf("%q: flows of %v packets, want %v", name, packets, want)
		}
	}
}
