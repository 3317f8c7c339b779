package review_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/review"
)

// classic is a capture as tcpdump writes it: pcap, which has no directions and no comments, with no more than snap
// bytes of each frame.
func classic(t *testing.T, file []byte, snap int) []byte {
	t.Helper()
	le := binary.LittleEndian
	out := le.AppendUint32(nil, 0xa1b2c3d4)
	out = le.AppendUint32(out, 2|4<<16)
	out = le.AppendUint64(out, 0)
	out = le.AppendUint32(out, uint32(snap))
	out = le.AppendUint32(out, 1)
	r, err := capture.NewReader(bytes.NewReader(file))
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err == nil && rec.Kind == capture.PacketRecord {
			out = le.AppendUint32(out, uint32(rec.Time/1e9))
			out = le.AppendUint32(out, uint32(rec.Time%1e9/1e3))
			kept := min(snap, len(rec.Frame))
			out = le.AppendUint32(out, uint32(kept))
			out = le.AppendUint32(out, uint32(len(rec.Frame)))
			out = append(out, rec.Frame[:kept]...)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return out
}

// TestI4_DroppedFramesMakeNoFlow: a frame that the frame guard throws away makes no flow of another tool's capture
// either, with directions and without.
func TestI4_DroppedFramesMakeNoFlow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		reason string
		frames int64
		flows  int
	}{
		"link-source-ip":  {"source_ip", 4, 0},
		"link-source-mac": {"source_mac", 2, 1}, // which of them was leased can't be told
		"ip-options":      {"ip_options", 4, 0},
		"ip-multicast":    {"multicast", 5, 0},
		"link-rogue-dhcp": {"dhcp_server", 1, 0},
	} {
		c, file := caseOf(t, name)
		for kind, file := range map[string][]byte{"pcapng": file, "pcap": classic(t, file, 1<<16)} {
			if kind == "pcap" && (name == "ip-multicast" || name == "link-rogue-dhcp") {
				continue // without directions, a broadcast could be anybody's
			}
			r := read(t, file, review.Options{Policy: policyOf(t, &c)})
			if r.Guarded[tt.reason] != tt.frames || r.Len() != tt.flows {
				t.Errorf("%s as %s: %d flows, thrown away %v; want %d flows, %s %d", name, kind, r.Len(), r.Guarded, tt.flows, tt.reason, tt.frames)
			}
			// What every guest sends to groups is counted, and no news.
			news := tt.reason != string(frameguard.DropMulticast.Reason())
			if s := strings.Join(r.Summary(), "\n"); strings.Contains(s, "frames would be thrown away by the frame guard: "+tt.reason) != news {
				t.Errorf("%s as %s: the summary says %s", name, kind, s)
			}
		}
	}
}

// TestI4_CapturesSayWhatWasDropped: there the guard knew the lease, and the review doesn't.
func TestI4_CapturesSayWhatWasDropped(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "link-source-ip")
	reader, err := capture.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Options{})
	for n := 0; ; n++ {
		rec, err := reader.Next()
		if err != nil {
			break
		}
		text := ""
		if n == 0 {
			text = "msb: dropped by the frame guard: source_ip"
		}
		w.Packet(rec.Direction, rec.Frame, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := read(t, out.Bytes(), review.Options{Policy: policyOf(t, &c)})
	if r.Dropped["source_ip"] != 1 || len(r.Guarded) != 0 || r.Len() != 3 {
		t.Errorf("%d flows, dropped %v, would drop %v; want 3 flows and one dropped", r.Len(), r.Dropped, r.Guarded)
	}
}

// TestTruncatedRecordsAreNotMalformed: `tcpdump -s` keeps the head of a frame, whose lengths are those of the whole.
func TestTruncatedRecordsAreNotMalformed(t *testing.T) {
	t.Parallel()
	c, file := caseOf(t, "apt")
	want := read(t, file, review.Options{Policy: policyOf(t, &c)})
	for _, snap := range []int{64, 96, 128, 200} {
		r := read(t, classic(t, file, snap), review.Options{Policy: policyOf(t, &c)})
		if len(r.Guarded) != 0 || r.Len() != want.Len() {
			t.Errorf("cut at %d: %d flows, want %d; would drop %v", snap, r.Len(), want.Len(), r.Guarded)
		}
	}
	for _, snap := range []int{14, 20, 34, 42, 48} { // of which nobody knows what flow they are
		if r := read(t, classic(t, file, snap), review.Options{Policy: policyOf(t, &c)}); len(r.Guarded) != 0 {
			t.Errorf("cut at %d: would drop %v", snap, r.Guarded)
		}
	}
}

// TestI11_ReasonsOfDropsAreBounded: they are the text of whoever made the capture.
func TestI11_ReasonsOfDropsAreBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	w := capture.NewWriter(&out, capture.Options{})
	for i := range 5000 {
		w.Packet(capture.FromGuest, make([]byte, 20), "msb: dropped by the frame guard: r"+strings.Repeat("x", i%100)+string(rune('a'+i%26)))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := read(t, out.Bytes(), review.Options{Policy: policy(t, "")})
	total := int64(0)
	for _, n := range r.Dropped {
		total += n
	}
	if len(r.Dropped) > 65 || total != 5000 {
		t.Errorf("%d reasons for %d frames, want 65 at most and 5000", len(r.Dropped), total)
	}
}

// TestI4_AnswersShowTheLeasedMAC: in a capture without comments the frames that the gateway sends show which MAC it leased. A
// frame from any other makes no flow; in the twin the gateway answers nobody.
func TestI4_AnswersShowTheLeasedMAC(t *testing.T) {
	t.Parallel()
	for answers, want := range map[bool]int{true: 1, false: 2} {
		l := newLink()
		l.w.Packet(capture.FromGuest, segment(40000, capture.SYN, 999, ""), "")
		if answers {
			l.w.Packet(capture.ToGuest, accepts(80, 40000, 999), "")
		}
		other := segment(40001, capture.SYN, 999, "")
		other[11]++ // its source MAC
		l.w.Packet(capture.FromGuest, other, "")
		r := l.review(t)
		if r.Len() != want || r.Guarded["source_mac"] != int64(2-want) {
			t.Errorf("answers %v: %d flows, thrown away %v; want %d flows", answers, r.Len(), r.Guarded, want)
		}
	}
}
