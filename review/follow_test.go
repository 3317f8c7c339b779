package review_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/internal/pcapgen"
	"github.com/msb-project/msb/review"
)

const followPolicy = `
[[egress.allow]]
name = "api"
hosts = ["good.example"]
ports = [80]
protocol = "http"
methods = ["GET", "POST"]
paths = ["/open/**"]
`

// link writes captures of a guest's TCP, frame by frame, without comments.
type link struct {
	out bytes.Buffer
	w   *capture.Writer
}

func newLink() *link { return newLinkWith(capture.Options{}) }

func newLinkWith(o capture.Options) *link {
	l := &link{}
	l.w = capture.NewWriter(&l.out, o)
	l.w.Names("good.example", []netip.Addr{netip.MustParseAddr("93.184.215.14")})
	return l
}

// segment is a frame of the guest's to port 80 of good.example.
func segment(port uint16, flags byte, seq uint32, payload string) []byte {
	return segmentTo(80, port, flags, seq, payload)
}

func segmentTo(to, port uint16, flags byte, seq uint32, payload string) []byte {
	be := binary.BigEndian
	f := packet(6, 20+len(payload))
	f = be.AppendUint16(be.AppendUint16(f, port), to)
	f = be.AppendUint32(be.AppendUint32(f, seq), 1)
	f = append(f, 0x50, flags, 255, 255, 0, 0, 0, 0)
	return append(f, payload...)
}

// accepts is the answer to a SYN, with a window scale of 14.
func accepts(from, port uint16, seq uint32) []byte {
	f := answered(segmentTo(from, port, capture.SYN|capture.ACK, 0, "\x03\x03\x0e\x00"))
	f[14+20+12] = 0x60
	binary.BigEndian.PutUint32(f[14+20+8:], seq+1)
	return f
}

// announces acknowledges what comes before next.
func announces(from, port uint16, next uint32) []byte {
	f := answered(segmentTo(from, port, capture.ACK, 1, ""))
	binary.BigEndian.PutUint32(f[14+20+8:], next)
	return f
}

// packet is the head of an IPv4 packet to good.example.
func packet(proto byte, length int) []byte {
	f := append(append(bytes.Clone(pcapgen.GatewayMAC), pcapgen.GuestMAC...), 8, 0, 0x45, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(20+length))
	f = append(f, 0, 0, 0, 0, 64, proto, 0, 0)
	return append(append(f, pcapgen.Guest4.AsSlice()...), 93, 184, 215, 14)
}

// question is a datagram that asks for a type of a.example.
func question(kind uint16) []byte {
	ask := "\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x07example\x00"
	f := packet(17, 8+len(ask)+4)
	f = append(f, 0x90, 0, 0, 53, 0, byte(8+len(ask)+4), 0, 0)
	f = binary.BigEndian.AppendUint16(append(f, ask...), kind)
	return append(f, 0, 1)
}

// tcp sends a segment to good.example.
func (l *link) tcp(port uint16, flags byte, seq uint32, payload string) {
	l.w.Packet(capture.FromGuest, segment(port, flags, seq, payload), "")
	if flags == capture.SYN { // it is answered, and the window is wide
		l.w.Packet(capture.ToGuest, accepts(80, port, seq), "")
		l.w.Packet(capture.ToGuest, announces(80, port, seq+1), "")
		l.w.Packet(capture.FromGuest, segment(port, capture.ACK, seq+1, ""), "")
	}
}

// says opens a connection and sends text in pieces of n bytes.
func (l *link) says(port uint16, n int, text string) (seq uint32) {
	l.tcp(port, capture.SYN, 999, "")
	seq = 1000
	for piece := range slices.Chunk([]byte(text), n) {
		l.tcp(port, capture.ACK, seq, string(piece))
		seq += uint32(len(piece))
	}
	return seq
}

func (l *link) review(t *testing.T) *review.Report {
	t.Helper()
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	return read(t, l.out.Bytes(), review.Options{Policy: policy(t, followPolicy)})
}

// verdictsOn are the requests of a report: "GET /open/1 allow rule".
func verdictsOn(r *review.Report) []string {
	var all []string
	for _, q := range r.Requests {
		text := q.Method + " " + q.Path
		if q.Unfollowed {
			text = "?"
		}
		all = append(all, strings.TrimSpace(text+" "+q.Verdict.Action+" "+q.Verdict.Reason))
	}
	return all
}

const goodHost = " HTTP/1.1\r\nHost: good.example\r\n"

// TestI7_KeptConnectionsRequestsAreJudged without a comment that tells of it, wherever the body before it ends.
func TestI7_KeptConnectionsRequestsAreJudged(t *testing.T) {
	t.Parallel()
	const (
		first, denied = "GET /open/1" + goodHost + "\r\n", "GET /shut" + goodHost + "\r\n"
		isFirst, is   = "GET /open/1 allow rule", "GET /shut deny path_not_allowed"
		isPost        = "POST /open/2 allow rule"
	)
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"behind a GET":                {first + denied, []string{isFirst, is}},
		"behind a length":             {"POST /open/2" + goodHost + "Content-Length: 14\r\n\r\nGET /hidden HT" + denied, []string{isPost, is}},
		"behind chunks":               {"POST /open/2" + goodHost + "Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nGET /\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n" + denied, []string{isPost, is}},
		"in a length only":            {"POST /open/2" + goodHost + "Content-Length: 100000\r\n\r\n" + denied, []string{isPost}},
		"behind many":                 {strings.Repeat(first, 50) + denied, append(slices.Repeat([]string{isFirst}, 50), is)},
		"for another host":            {first + "GET /open/1 HTTP/1.1\r\nHost: evil.example\r\n\r\n" + denied, []string{isFirst, "GET /open/1 deny host_mismatch", is}},
		"with a method in a header":   {first + "POST /open/2" + goodHost + "X-HTTP-Method-Override: DELETE\r\n\r\n", []string{isFirst, "POST /open/2 deny method_not_allowed"}},
		"two lengths":                 {first + "POST /open/2" + goodHost + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + denied, []string{isFirst, "deny unreadable"}},
		"a bare line feed":            {first + "GET /open/2\n" + denied, []string{isFirst, "deny unreadable"}},
		"behind the last":             {"GET /open/1" + goodHost + "Connection: close\r\n\r\n" + denied, []string{isFirst}},
		"behind another protocol":     {"GET /open/1" + goodHost + "Upgrade: websocket\r\nConnection: upgrade\r\n\r\n" + denied, []string{isFirst}},
		"not ended":                   {first + strings.TrimSuffix(denied, "\r\n"), []string{isFirst}},
		"a line that can't be read":   {first + "GET /open/%zz HTTP/1.1\r\nX: y\r\n", []string{isFirst, "deny unreadable"}}, // the head does not end
		"TRACE":                       {first + "TRACE /open/1" + goodHost + "\r\n", []string{isFirst, "TRACE /open/1 deny trace"}},
		"with a head that never ends": {first + "GET /open/2" + goodHost + strings.Repeat("X: "+strings.Repeat("a", 1000)+"\r\n", 100), []string{isFirst, "deny unreadable"}},
	} {
		for _, n := range []int{1, 7, 1400} {
			l := newLink()
			l.says(40001, n, tt.text)
			if got := verdictsOn(l.review(t)); !slices.Equal(got, tt.want) {
				t.Errorf("%s, in pieces of %d: %q, want %q", name, n, got, tt.want)
			}
		}
	}
}

// TestRequestsInSegmentsOutOfOrder: late, doubled and overlapping segments change nothing.
func TestRequestsInSegmentsOutOfOrder(t *testing.T) {
	t.Parallel()
	text := ""
	var want []string
	for i := range 40 {
		text += fmt.Sprintf("POST /open/%d%sContent-Length: 30\r\n\r\n%s", i, goodHost, strings.Repeat("b", 30))
		want = append(want, fmt.Sprintf("POST /open/%d allow rule", i))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		l := newLink()
		l.tcp(40001, capture.SYN, 999, "")
		var starts []int
		for at := 0; at < len(text); at += 50 {
			starts = append(starts, at)
		}
		for i := 0; i+4 < len(starts); i += 2 {
			random.Shuffle(4, func(a, b int) { starts[i+a], starts[i+b] = starts[i+b], starts[i+a] })
		}
		for _, at := range starts {
			end := min(at+50+random.IntN(40), len(text))
			for range 1 + random.IntN(2) {
				l.tcp(40001, capture.ACK, uint32(1000+at), text[at:end])
			}
		}
		if got := verdictsOn(l.review(t)); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
}

// TestWhatCantBeFollowedIsUndecided: bytes that the capture lacks are not guessed.
func TestWhatCantBeFollowedIsUndecided(t *testing.T) {
	t.Parallel()
	const first = "GET /open/1" + goodHost + "\r\n"
	want := []string{"GET /open/1 allow rule", "? undecided"}
	for name, more := range map[string]func(l *link, seq uint32){
		"a gap at the end": func(l *link, seq uint32) { l.tcp(40001, capture.ACK, seq+10, first) },
		"a gap, then a reset": func(l *link, seq uint32) {
			l.tcp(40001, capture.ACK, seq+10, first)
			l.tcp(40001, capture.RST, seq+10, "")
		},
		"a gap, then another connection": func(l *link, seq uint32) {
			l.tcp(40001, capture.ACK, seq+10, first)
			l.tcp(40001, capture.SYN, 5, "")
		},
		"a frame without its end": func(l *link, seq uint32) {
			l.tcp(40001, capture.ACK, seq, "GET /shut"+goodHost+"X: "+strings.Repeat("a", 200)+"\r\n\r\n")
		},
		"more behind a gap than is kept": func(l *link, seq uint32) {
			for i := range uint32(200) {
				l.tcp(40001, capture.ACK, seq+10+i, first)
			}
		},
	} {
		l := newLinkWith(capture.Options{SnapLen: 160})
		more(l, l.says(40001, 1400, first))
		r := l.review(t)
		if got := verdictsOn(r); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if r.Count(review.IsUndecided) == 0 {
			t.Errorf("%s: --fail-on undecided does not hold", name)
		}
	}
}

// TestI11_FollowedConnectionsAreBounded: any number of them may stay open, with heads that never end. What is beyond
// the bounds is undecided.
func TestI11_FollowedConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const first = "GET /open/1" + goodHost + "\r\n"
	for name, tt := range map[string]struct{ conns, head, followed int }{
		"connections": {20_000, 100, 16_384},
		"bytes":       {1400, 60_000, 64 << 20 / 60_000},
	} {
		l := newLink()
		for i := range tt.conns {
			l.says(uint16(10_000+i), 1400, first)
		}
		for i := range tt.conns {
			l.tcp(uint16(10_000+i), capture.ACK, 1000+uint32(len(first)), "GET /open/2"+goodHost+"X: "+strings.Repeat("a", tt.head))
		}
		r := l.review(t)
		unfollowed := 0
		for _, q := range r.Requests {
			if q.Unfollowed {
				unfollowed++
			}
		}
		if unfollowed < tt.conns-tt.followed || name == "connections" && unfollowed != tt.conns-tt.followed || unfollowed == tt.conns || len(r.Requests) < tt.conns {
			t.Errorf("%s: %d of %d connections are not followed, want %d at least; %d requests", name, unfollowed, tt.conns, tt.conns-tt.followed, len(r.Requests))
		}
	}
}

// TestI16_LateSYNsBeginNoConnection: the gateway's stack drops them, with all that they carry. The twin comes after a reset.
func TestI16_LateSYNsBeginNoConnection(t *testing.T) {
	t.Parallel()
	const first, second = "GET /open/1 HTTP/1.1\r\nHost: good.example\r\n\r\n", "GET /shut HTTP/1.1\r\nHost: good.example\r\n\r\n"
	for reset, want := range map[bool][]string{
		false: {"GET /open/1 allow rule", "GET /shut deny path_not_allowed"},
		true:  {"GET /open/1 allow rule", "GET /open/1 allow rule"},
	} {
		l := newLink()
		seq := l.says(40000, 1400, first)
		if reset {
			l.tcp(40000, capture.RST, seq, "")
			l.tcp(40000, capture.SYN, 5999, "")
			l.tcp(40000, capture.ACK, 6000, first)
		} else {
			l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, 5999, first), "")
		}
		l.tcp(40000, capture.ACK, seq, second) // behind a reset it is of no connection
		if got := verdictsOn(l.review(t)); !slices.Equal(got, want) {
			t.Errorf("reset %v: %q, want %q", reset, got, want)
		}
	}
}

// TestI16_SYNsReopenNoLiveConnection: a SYN with another sequence number, in a capture without directions. While the gateway
// has the connection it is dropped; behind a reset it opens another one.
func TestI16_SYNsReopenNoLiveConnection(t *testing.T) {
	t.Parallel()
	for reset, want := range map[bool]int{false: 1, true: 2} {
		l := newLink()
		seq := l.says(40000, 1400, "GET /open/1 HTTP/1.1\r\nHost: 93.184.215.14\r\n\r\n")
		if reset {
			l.tcp(40000, capture.RST, seq, "")
		}
		l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, 5999, ""), "")
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, classic(t, l.out.Bytes(), 1<<16), review.Options{Policy: policy(t, "[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n")}) // the requests are followed
		if r.Len() != want {
			t.Errorf("reset %v: %d flows, want %d: %q", reset, r.Len(), want, r.Rows(false))
		}
	}
}

// TestLearningTakesUncommentedRequests: a capture may lack the comment of one request. It is learned from its bytes, and no
// other request's recorded verdict becomes its own.
func TestLearningTakesUncommentedRequests(t *testing.T) {
	t.Parallel()
	paths := []string{"/open/1", "/open/2", "/open/3"}
	for lacking := range paths {
		l := newLink()
		l.tcp(40000, capture.SYN, 999, "")
		seq := uint32(1000)
		for i, path := range paths {
			text, comment := "GET "+path+goodHost+"\r\n", ""
			if i != lacking {
				comment = capture.Verdict{
					Kind: capture.KindRequest, Flow: 1, Action: "allow", Rule: "api", Reason: "rule",
					Name: "good.example", Scheme: "http", Method: "GET", Path: path,
				}.String()
			}
			l.w.Packet(capture.FromGuest, segment(40000, capture.ACK, seq, text), comment)
			seq += uint32(len(text))
		}
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		r := read(t, l.out.Bytes(), review.Options{Policy: policy(t, followPolicy), Learn: true})
		for _, path := range paths {
			if !bytes.Contains(r.Learned(), []byte(path)) {
				t.Errorf("without the comment on %s, %s isn't learned:\n%s", paths[lacking], path, r.Learned())
			}
		}
		if len(r.Requests) != len(paths) {
			t.Fatalf("without the comment on %s: %q", paths[lacking], verdictsOn(r))
		}
		for i, q := range r.Requests {
			if (q.Recorded == nil) != (i == lacking) {
				t.Errorf("without the comment on %s: %s has the recorded verdict %+v", paths[lacking], q.Path, q.Recorded)
			}
		}
	}
}

// TestFlowsKeepTheirFirstName: later requests of a connection name what they like.
func TestFlowsKeepTheirFirstName(t *testing.T) {
	t.Parallel()
	l := newLink()
	l.says(40000, 1400, "GET /open/1"+goodHost+"\r\nGET /open/1 HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	r := l.review(t)
	for f := range r.Flows() {
		if f.Name != "good.example" || len(r.Requests) != 2 || r.Requests[1].Host != "evil.example" {
			t.Errorf("the flow is called %s, with requests %+v", f.Name, r.Requests)
		}
	}
}

// TestI16_ResetsEndWhatIsNotRead: what came before its turn on a connection that the client resets counts for nothing.
func TestI16_ResetsEndWhatIsNotRead(t *testing.T) {
	t.Parallel()
	const first = "GET /open/1" + goodHost + "\r\n"
	for at, want := range map[uint32][]string{0: {"GET /open/1 allow rule"}, 10: {"GET /open/1 allow rule", "? undecided"}} {
		l := newLink()
		seq := l.says(40000, 1400, first)
		l.tcp(40000, capture.ACK, seq+10, first)
		l.tcp(40000, capture.RST, seq+at, "")
		if got := verdictsOn(l.review(t)); !slices.Equal(got, want) {
			t.Errorf("a reset %d bytes ahead: %q, want %q", at, got, want)
		}
	}
}

// TestI16_ServersResetsEndConnections in captures without directions too: what the client says behind one is of no connection.
func TestI16_ServersResetsEndConnections(t *testing.T) {
	t.Parallel()
	const first = "GET /open/1 HTTP/1.1\r\nHost: 93.184.215.14\r\n\r\n"
	for reset, want := range map[bool]int{true: 1, false: 2} {
		l := newLink()
		seq := l.says(40000, 1400, first)
		if reset {
			l.w.Packet(capture.ToGuest, answered(segment(40000, capture.RST, 1, "")), "")
		}
		l.tcp(40000, capture.ACK, seq, first)
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		for kind, file := range map[string][]byte{"pcapng": l.out.Bytes(), "pcap": classic(t, l.out.Bytes(), 1<<16)} {
			p := "[egress]\ndefault = \"public\"\n[[egress.deny]]\nhosts = [\"evil.example\"]\n" // the requests are followed
			if r := read(t, file, review.Options{Policy: policy(t, p)}); len(r.Requests) != want {
				t.Errorf("%s, reset %v: %d requests, want %d", kind, reset, len(r.Requests), want)
			}
		}
	}
}

// TestCommentsStandForWhatCantBeFollowed: of a connection whose requests are in comments, bytes that are missing hide none.
func TestCommentsStandForWhatCantBeFollowed(t *testing.T) {
	t.Parallel()
	for comment, want := range map[string][]string{
		"": {"GET /open/1 allow rule", "? undecided"},
		requestComment(capture.Verdict{Action: "allow", Rule: "api", Reason: "rule", Method: "GET", Path: "/open/1"}): {"GET /open/1 allow rule"},
	} {
		l := newLink()
		seq := l.says(40000, 1400, "GET /open/1"+goodHost+"\r\n")
		l.w.Packet(capture.FromGuest, segment(40000, capture.ACK, seq+10, "behind a gap"), comment)
		if got := verdictsOn(l.review(t)); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", comment, got, want)
		}
	}
}

// TestUnreadableRequestsTeachNothing: what is learned says that no rule lets them through.
func TestUnreadableRequestsTeachNothing(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"GET /open/2\n": "", "GET /open/2 HTTP/1.1\r\nHost: evil.example\r\n\r\n": "host_mismatch", "TRACE /open/2" + goodHost + "\r\n": "trace"} {
		l := newLink()
		l.says(40000, 1400, "GET /open/1"+goodHost+"\r\n"+text)
		if err := l.w.Close(); err != nil {
			t.Fatal(err)
		}
		learned := string(read(t, l.out.Bytes(), review.Options{Policy: policy(t, followPolicy), Learn: true}).Learned())
		if strings.Contains(learned, "\"/open/2\"") || !strings.Contains(learned, "\"/open/1\"") || want != "" && !strings.Contains(learned, "refused whatever the rules: "+want) {
			t.Errorf("%q: learned\n%s", text, learned)
		}
	}
}
