package review_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/review"
)

// hostileText is what a terminal acts on, a page would run, and TOML would take for a rule.
const hostileText = "\x1b]52;c;aGk=\a\u009b2J\r\n[[egress.allow]]\nhosts = [\"*\"]\n<script>alert(1)</script>\"'\u202e"

// hostileCapture has that text in every place of a comment where text may be, and in names.
func hostileCapture(t *testing.T) []byte {
	t.Helper()
	l := newLink()
	l.w.Names(hostileText+".example", nil)
	port := uint16(40_000)
	for _, kind := range []string{capture.KindFlow, capture.KindName, capture.KindRequest} {
		for _, action := range []string{"allow", "deny", "inspect", hostileText} {
			port++
			l.says(port, 1400, "GET /open/"+hostileText+goodHost+"\r\n")
			v := capture.Verdict{
				Kind: kind, Flow: 1, Action: action, Rule: hostileText, Reason: hostileText, Name: hostileText, To: hostileText,
				Scheme: hostileText, Method: "GET" + hostileText, Path: "/" + hostileText, Overrides: hostileText, Message: hostileText,
			}
			for _, text := range []string{v.String(), "msb: dropped by the frame guard: " + hostileText} {
				l.w.Packet(capture.FromGuest, segment(port, capture.ACK, 90_000, "x"), text)
			}
		}
	}
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	return l.out.Bytes()
}

// TestCapturesCantActOnReaders: whoever hands a capture over chose all text in it.
func TestCapturesCantActOnReaders(t *testing.T) {
	t.Parallel()
	r := read(t, hostileCapture(t), review.Options{Policy: policy(t, followPolicy), Against: policy(t, ""), Learn: true})
	if len(r.Requests) < 4 {
		t.Fatalf("%d requests: the comments were not read", len(r.Requests))
	}
	for _, row := range r.Rows(false) {
		for _, cell := range row {
			printable(t, cell)
		}
	}
	for _, line := range r.Summary() {
		printable(t, line)
	}
	var page, data bytes.Buffer
	if err := r.WriteHTML(&page, hostileText); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(page.String(), "<script>alert") {
		t.Error("a script of the capture's is in the page")
	}
	if err := r.WriteJSON(&data); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(data.Bytes()) {
		t.Error("the JSON is none")
	}
	for line := range bytes.Lines(data.Bytes()) {
		printable(t, strings.TrimSuffix(string(line), "\n"))
	}
	learned, err := policies.Parse("learned.toml", r.Learned(), nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, r.Learned())
	}
	for _, rule := range learned.Egress.Allow {
		for _, host := range rule.Hosts {
			if host.String() == "*" {
				t.Errorf("the capture wrote a rule of its own:\n%s", r.Learned())
			}
		}
	}
	for line := range strings.Lines(string(r.Learned())) {
		printable(t, strings.TrimSuffix(line, "\n"))
	}
}

// TestReviewTimeIsLinear: comments that belong to nothing, and ones that belong to many rows, cost what
// others do.
func TestReviewTimeIsLinear(t *testing.T) {
	t.Parallel()
	const (
		n          = 20_000
		squareTime = 90 * time.Second // a second on an idle machine; minutes where the cost is a square
	)
	for name, build := range map[string]func(l *link){
		"comments on requests that are none": func(l *link) {
			seq := l.says(40_001, 1400, strings.Repeat("GET /open/1"+goodHost+"\r\n", n))
			for range n {
				l.w.Packet(capture.FromGuest, segment(40_001, capture.ACK, seq, ""), "msb http=1 action=allow method=GET path=/other name=good.example scheme=http")
			}
		},
		"comments on requests, one each": func(l *link) {
			seq := l.says(40_001, 1400, strings.Repeat("GET /open/1"+goodHost+"\r\n", n))
			for range n {
				l.w.Packet(capture.FromGuest, segment(40_001, capture.ACK, seq, ""), "msb http=1 action=allow method=GET path=/open/1 name=good.example scheme=http")
			}
		},
		"comments on a name with every type": func(l *link) {
			for i := range n {
				l.w.Packet(capture.FromGuest, question(uint16(i)), "")
			}
			for i := range n {
				l.w.Packet(capture.FromGuest, question(uint16(i)), "msb dns=1 action=deny reason=no_rule name=a.example")
			}
		},
		"a stream of DNS in single bytes": func(l *link) {
			l.w.Packet(capture.FromGuest, segmentTo(53, 40_001, capture.SYN, 999, ""), "")
			l.w.Packet(capture.FromGuest, segmentTo(53, 40_001, capture.ACK, 1000, "\xff\xff"), "")
			for i := range uint32(n) {
				l.w.Packet(capture.FromGuest, segmentTo(53, 40_001, capture.ACK, 1002+i, "x"), "")
			}
		},
	} {
		l := newLink()
		build(l)
		start := time.Now()
		r := l.review(t)
		if took := time.Since(start); took > squareTime {
			t.Errorf("%s: %d packets took %v", name, r.Packets, took)
		}
	}
}

// TestCommentsMakeRequestsOfTCPAlone: a comment about a request on a datagram, as a capture from elsewhere may hold it, is
// no request.
func TestCommentsMakeRequestsOfTCPAlone(t *testing.T) {
	t.Parallel()
	const text = "msb http=1 action=allow method=GET path=/open/1 name=good.example scheme=http"
	for proto, want := range map[string]int{"tcp": 1, "udp": 0} {
		l := newLink()
		if proto == "tcp" {
			l.says(40_001, 1400, "GET /open/1"+goodHost+"\r\n")
			l.w.Packet(capture.FromGuest, segment(40_001, capture.ACK, 90_000, ""), text)
		} else {
			f := append(packet(17, 8), 0x90, 0, 0x01, 0xbb, 0, 8, 0, 0)
			l.w.Packet(capture.FromGuest, f, text)
		}
		r, flows := l.review(t), 0
		for range r.Flows() {
			flows++
		}
		if len(r.Requests) != want || flows != 1 {
			t.Errorf("%s: %d requests on %d flows, want %d on one: %+v", proto, len(r.Requests), flows, want, r.Requests)
		}
	}
}
