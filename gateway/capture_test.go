package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/netstack"
)

// tapped is a capture in memory with a guest's frames.
type tapped struct {
	*CaptureTap
	file bytes.Buffer
	w    *capture.Writer
}

func newTapped() *tapped {
	c := &tapped{CaptureTap: NewCaptureTap()}
	c.w = capture.NewWriter(&c.file, capture.Options{})
	c.Start(c.w)
	return c
}

var webServer = netip.MustParseAddr("93.184.215.14")

// syn is the first frame of a connection to port 443 of webServer.
func syn(port uint16) []byte {
	b := make([]byte, 54)
	b[12], b[14], b[17], b[23] = 0x08, 0x45, 40, 6
	copy(b[26:], []byte{192, 168, 127, 2})
	copy(b[30:], webServer.AsSlice())
	binary.BigEndian.PutUint16(b[34:], port)
	binary.BigEndian.PutUint16(b[36:], 443)
	b[46], b[47] = 5<<4, capture.SYN
	return b
}

// asked is the verdict on a request of the connection.
func asked(port uint16, method, path string) audit.Event {
	return audit.Event{
		Kind: audit.HTTPRequest, Proto: "tcp", SrcPort: port, Dst: webServer, Port: 443, Flow: uint64(port),
		Action: "deny", Reason: "no_rule", Scheme: "https", Host: "api.example.com", Method: method, Path: path,
	}
}

// comments ends the capture and returns what stands on its packets.
func (c *tapped) comments(t *testing.T) (all []string) {
	t.Helper()
	if err := c.w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(&c.file)
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err == nil {
			all = append(all, rec.Comments...)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return all
}

// TestCapturesSayWhereFramesWent writes frames of both directions, one by one and in a batch.
func TestCapturesSayWhereFramesWent(t *testing.T) {
	t.Parallel()
	c := newTapped()
	var want []capture.Direction
	for dir, written := range map[netstack.Direction]capture.Direction{netstack.FromGuest: capture.FromGuest, netstack.ToGuest: capture.ToGuest} {
		c.Frame(dir, syn(1000), "")
		var batch netstack.Batch
		batch.Part(syn(1001))
		batch.End()
		c.Frames(dir, &batch)
		c.Frame(dir, syn(1002), "bad_checksum")
		want = append(want, written, written, written)
	}
	if err := c.w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []capture.Direction
	r, err := capture.NewReader(&c.file)
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err == nil && rec.Kind == capture.PacketRecord {
			got = append(got, rec.Direction)
		}
	}
	if !errors.Is(err, io.EOF) || !slices.Equal(got, want) {
		t.Errorf("directions %v, want %v (%v)", got, want, err)
	}
}

// TestEarlierCapturesGetNoComments: the capture is switched between a packet and the verdict on it. Its
// ticket points to some other place of the new capture, where a comment would tear a block.
func TestEarlierCapturesGetNoComments(t *testing.T) {
	t.Parallel()
	c := newTapped()
	before := c.w
	before.Packet(capture.FromGuest, make([]byte, 100), "")
	ticket := before.Packet(capture.FromGuest, syn(1000), "")
	c.w = capture.NewWriter(&c.file, capture.Options{})
	if old := c.Start(c.w); old != before {
		t.Fatal("another writer was stopped")
	}
	c.w.Packet(capture.FromGuest, bytes.Repeat([]byte{0xff}, 1000), "")
	c.match(before, netstack.FromGuest, syn(1000), ticket)
	c.saw(asked(1000, http.MethodGet, "/"))
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	c.file.Reset()
	if all := c.comments(t); len(all) != 0 {
		t.Errorf("comments on another packet: %q", all)
	}
}

// TestCommentsOutliveLostPackets: a slow disk may cost packets, and then the next one has the verdict.
func TestCommentsOutliveLostPackets(t *testing.T) {
	t.Parallel()
	c := newTapped()
	c.saw(asked(1000, http.MethodGet, "/secret"))
	c.match(c.w, netstack.FromGuest, syn(1000), capture.Ticket{}) // the disk is behind
	c.Frame(netstack.FromGuest, syn(1000), "")
	if all := c.comments(t); len(all) != 1 || !strings.Contains(all[0], "path=/secret") {
		t.Errorf("comments: %q; want the request", all)
	}
}

// TestI11_CommentsThatAreForgottenAreCounted: flows of which no packet comes any more push out the comments of
// others. A review must know that there were some.
func TestI11_CommentsThatAreForgottenAreCounted(t *testing.T) {
	t.Parallel()
	c := newTapped()
	for port := range uint16(maxAwaited + 1) {
		c.saw(asked(1000+port, http.MethodGet, "/"))
	}
	c.Frame(netstack.FromGuest, syn(1000+maxAwaited), "")
	all := c.comments(t)
	if len(all) != 2 || capture.ParseLostVerdicts(all[1]) != maxAwaited {
		t.Errorf("comments: %q; want a request, and that %d are missing", all, maxAwaited)
	}
}

// TestCommentsThatWaitAtTheEndAreCounted: a capture that stops says how many verdicts found no packet in it, those of flows that
// were forgotten before among them. The next one has none of them.
func TestCommentsThatWaitAtTheEndAreCounted(t *testing.T) {
	t.Parallel()
	for _, waiting := range []int{0, 2, maxAwaited + 3} {
		c := newTapped()
		for i := range waiting {
			c.saw(asked(uint16(1000+i), http.MethodGet, "/"))
		}
		var next bytes.Buffer
		second := capture.NewWriter(&next, capture.Options{})
		old := c.Start(second)
		c.Start(nil)
		for w, file := range map[*capture.Writer]*bytes.Buffer{old: &c.file, second: &next} {
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			r, err := capture.NewReader(file)
			for err == nil {
				_, err = r.Next()
			}
			want := 0
			if w == old {
				want = waiting
			}
			if !errors.Is(err, io.EOF) || r.LostVerdicts() != want {
				t.Errorf("%d wait: %d are lost, want %d; %v", waiting, r.LostVerdicts(), want, err)
			}
		}
	}
}

// TestI11_OverlongCommentsAreCounted: a guest chooses method and path. A comment that is cut in the
// middle of them is none to a review, and the request would be in no report.
func TestI11_OverlongCommentsAreCounted(t *testing.T) {
	t.Parallel()
	c := newTapped()
	c.saw(asked(1000, http.MethodGet, "/"+strings.Repeat("\xff", maxPath-1)))
	c.saw(asked(1000, strings.Repeat("X", 5000), "/"))
	c.saw(asked(1000, http.MethodGet, "/"+strings.Repeat("a", maxPath-1)))
	c.Frame(netstack.FromGuest, syn(1000), "")
	all := c.comments(t)
	if len(all) != 3 {
		t.Fatalf("%d comments: %.300q", len(all), all)
	}
	if v, ok := capture.ParseVerdict(all[0]); !ok || v.Method != http.MethodGet || v.Path != "" {
		t.Errorf("the request with the path that grows in quotes: %+v, %v", v, ok)
	}
	if capture.ParseLostVerdicts(all[1]) != 1 {
		t.Errorf("the method without end: %.80q", all[1])
	}
	if v, ok := capture.ParseVerdict(all[2]); !ok || len(v.Path) != maxPath {
		t.Errorf("the longest path: %.80q", all[2])
	}
}

// TestSwitchingUnderLoadTearsNoCapture: frames and verdicts come from many goroutines while parts begin and end.
func TestSwitchingUnderLoadTearsNoCapture(t *testing.T) {
	t.Parallel()
	c := NewCaptureTap()
	stop := make(chan struct{})
	var guests sync.WaitGroup
	for g := range uint16(4) {
		guests.Go(func() {
			for i := uint16(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				port := 1000*(g+1) + i%200
				c.Frame(netstack.FromGuest, syn(port), "")
				c.saw(asked(port, http.MethodGet, "/"))
			}
		})
	}
	var before *capture.Writer
	files := make([]bytes.Buffer, 40)
	for i := range files {
		w := capture.NewWriter(&files[i], capture.Options{})
		if before = c.Start(w); before != nil {
			if err := before.Close(); err != nil {
				t.Error(err)
			}
		}
		for packets := uint64(0); packets < 300; packets, _ = w.Stats() {
			runtime.Gosched()
		}
	}
	close(stop)
	guests.Wait()
	if err := c.Start(nil).Close(); err != nil {
		t.Error(err)
	}
	for i := range files {
		r, err := capture.NewReader(&files[i])
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("part %d: %v", i, err)
		}
	}
}
