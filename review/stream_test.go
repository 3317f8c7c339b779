package review

import (
	"testing"

	"github.com/msb-project/msb/capture"
)

const ackOnly, synAck = capture.ACK, capture.SYN | capture.ACK

// TestI16_StreamsTakeWhatTheStackTakes holds what random segments can't: what comes before the handshake or far ahead, and
// what the order of segments that begin at one place decides.
func TestI16_StreamsTakeWhatTheStackTakes(t *testing.T) {
	t.Parallel()
	type seg struct {
		down  bool
		flags uint8
		seq   uint32
		ack   uint32
		text  string
	}
	said := func(seq uint32, text string) seg { return seg{false, ackOnly, seq, 501, text} }
	syn, ack := seg{true, synAck, 500, 101, ""}, said(101, "")
	for name, c := range map[string]struct {
		lenient bool
		segs    []seg
		want    string
		unclear bool // whether it can be told
	}{
		"in order":                                {segs: []seg{syn, ack, said(101, "ab"), said(103, "cd")}, want: "abcd"},
		"before the gateway's SYN":                {segs: []seg{said(101, "xx"), syn, ack, said(101, "ab")}, want: "ab"},
		"the same without directions":             {lenient: true, segs: []seg{said(101, "xx"), syn, ack, said(101, "ab")}, want: "xxab"},
		"without the gateway's side":              {lenient: true, segs: []seg{said(101, "ab")}, want: "ab"},
		"without the gateway's side, directed":    {segs: []seg{said(101, "ab")}},
		"with the SYN":                            {segs: []seg{{false, capture.SYN, 100, 0, "xx"}, syn, ack, said(101, "ab")}, want: "ab"},
		"another number is acknowledged":          {segs: []seg{syn, {false, ackOnly, 101, 999, "xx"}, {true, ackOnly, 501, 103, ""}, said(101, "ab"), said(103, "cd")}, want: "xxcd"},
		"a reset during the handshake":            {segs: []seg{syn, {false, capture.RST, 150, 0, ""}, ack, said(101, "ab")}},
		"one outside of its window":               {segs: []seg{syn, {false, capture.RST, 100, 0, ""}, ack, said(101, "ab")}, want: "ab"},
		"another beside what completes it":        {segs: []seg{syn, said(101, "ab"), said(101, "xb")}, want: "ab", unclear: true},
		"another once that is acknowledged":       {segs: []seg{syn, said(101, "ab"), {true, ackOnly, 501, 103, ""}, said(101, "xbc")}, want: "abc"},
		"a FIN that completes it, then more":      {segs: []seg{syn, {false, ackOnly | capture.FIN, 101, 501, ""}, said(101, "ab")}, unclear: true},
		"a FIN where what completes it begins":    {segs: []seg{syn, said(101, "ab"), {false, ackOnly | capture.FIN, 101, 501, ""}}, want: "ab", unclear: true},
		"a reset behind what completes it":        {segs: []seg{syn, said(101, "ab"), {false, capture.RST, 103, 0, ""}}, want: "ab", unclear: true},
		"a reset that is not next":                {segs: []seg{syn, ack, {false, capture.RST, 102, 0, ""}, said(101, "ab")}, want: "ab"},
		"a reset":                                 {segs: []seg{syn, ack, {false, capture.RST, 101, 0, ""}, said(101, "ab")}},
		"behind a FIN":                            {segs: []seg{syn, ack, {false, ackOnly | capture.FIN, 101, 501, "ab"}, said(104, "cd"), said(103, "cd")}, want: "ab"},
		"a FIN alone before its turn":             {segs: []seg{syn, ack, {false, ackOnly | capture.FIN, 103, 501, ""}, said(101, "ab"), said(103, "cd")}, want: "abcd"},
		"a reset in the window before the answer": {segs: []seg{{false, capture.RST, 150, 0, ""}, syn, ack, said(101, "ab")}, unclear: true},
		"a reset before any answer":               {lenient: true, segs: []seg{{false, capture.RST, 101, 0, ""}, said(101, "ab")}},
		"one that is not next":                    {lenient: true, segs: []seg{{false, capture.RST, 102, 0, ""}, said(101, "ab")}, want: "ab"},
		"behind a FIN that isn't acknowledged":    {segs: []seg{syn, said(101, "ab"), {false, ackOnly | capture.FIN, 103, 501, ""}, said(101, "xb")}, want: "ab", unclear: true},
		"nothing behind such a FIN":               {segs: []seg{syn, said(101, "ab"), {false, ackOnly | capture.FIN, 103, 501, ""}, said(104, "")}, want: "ab"},
		"a FIN that completes it, ahead":          {segs: []seg{syn, {false, ackOnly | capture.FIN, 111, 501, "x"}, said(101, "abcdefghij")}, unclear: true},
		"a FIN with bytes that completes it":      {segs: []seg{syn, {false, ackOnly | capture.FIN, 101, 501, "ab"}}, want: "ab", unclear: true},
		"an old number beside what completes it":  {segs: []seg{syn, said(101, "ab"), said(90, "")}, want: "ab"},
		"behind the window of the handshake":      {segs: []seg{syn, said(1200, ""), {false, capture.RST, 150, 0, ""}, ack, said(101, "ab")}},
		"before the window of the handshake":      {segs: []seg{syn, said(50, ""), {false, capture.RST, 150, 0, ""}, ack, said(101, "ab")}},
		"the gateway's SYN, sent again":           {segs: []seg{syn, ack, said(101, "ab"), syn, said(103, "cd")}, want: "abcd"},
		"two unacknowledged, one acknowledged":    {segs: []seg{syn, said(101, "ab"), said(103, "cd"), {true, ackOnly, 501, 103, ""}, said(101, "xbcd")}, want: "abcd", unclear: true},
		"two unacknowledged, both acknowledged":   {segs: []seg{syn, said(101, "ab"), said(103, "cd"), {true, ackOnly, 501, 105, ""}, said(101, "xbcde")}, want: "abcde"},
		"two at one place":                        {segs: []seg{syn, ack, said(103, "cd"), said(103, "xx"), said(101, "ab")}, want: "abcd"},
		"two at one place, behind another":        {segs: []seg{syn, ack, said(102, "b"), said(103, "xx"), said(103, "cd"), said(101, "a")}, want: "abcd"},
		"behind the window":                       {segs: []seg{syn, ack, said(101+1000, "x"), said(101, "ab")}, unclear: true},
		"behind twice the window":                 {segs: []seg{syn, ack, said(101+2001, "x"), said(101, "ab")}, want: "ab"},
		"before the end of a window that opened":  {segs: []seg{syn, ack, {true, ackOnly, 501, 102, ""}, said(101+1000, "x"), said(101, "ab")}, want: "ab"},
		"at the end of a window that opened":      {segs: []seg{syn, ack, {true, ackOnly, 501, 102, ""}, said(102+1000, "x"), said(101, "ab")}, want: "ab"},
	} {
		s, got, clear := &stream{next: 101, lenient: c.lenient}, "", true
		for _, one := range c.segs {
			h := &capture.Headers{Flags: one.flags, Seq: one.seq, Ack: one.ack, Window: 999, Payload: []byte(one.text)}
			if one.down {
				s.answer(h)
			} else {
				clear = s.take(h, maxFirst, func(b []byte) int { got += string(b); return len(b) }) && clear
			}
		}
		if clear == c.unclear || clear && got != c.want {
			t.Errorf("%s: %q, clear %v; want %q, clear %v", name, got, clear, c.want, !c.unclear)
		}
	}
}

func TestSizesAreShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.0k", 999_900: "999.9k", 1_000_000: "1.0M", 2_500_000_000: "2.5G", 3e12: "3.0T", 4e15: "4000.0T"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
