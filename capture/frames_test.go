package capture

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// inParts is frames cut into parts.
type inParts [][][]byte

func (f inParts) Len() int             { return len(f) }
func (f inParts) Frame(i int) [][]byte { return f[i] }

func TestSplitFramesMakeTheSameCapture(t *testing.T) {
	t.Parallel()
	o := Options{SnapLen: 100, now: func() time.Time { return time.Unix(7, 9) }}
	var whole, parts buffer
	w, p := NewWriter(&whole, o), NewWriter(&parts, o)
	var frames inParts
	for i, n := range []int{14, 60, 99, 100, 101, 1514} {
		f := frame(i, n)
		w.Packet(ToGuest, f, "")
		frames = append(frames, [][]byte{f[:7], nil, f[7:13], f[13:]})
	}
	p.Packets(ToGuest, frames)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(whole.Bytes(), parts.Bytes()) {
		t.Errorf("the captures differ:\n%x\n%x", whole.Bytes(), parts.Bytes())
	}
	if taken, lost := p.Stats(); taken != 6 || lost != 0 {
		t.Errorf("%d packets taken, %d lost; want 6 and 0", taken, lost)
	}
}

func TestAPacketsSizeIsKnownBeforehand(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 1, 2, 3, 4, 1514} {
		for _, text := range []string{"", "a", "four", "above", strings.Repeat("long", maxComment)} {
			for _, drops := range []uint64{0, 7} {
				b := packetBlock(nil, 1, ToGuest, [][]byte{make([]byte, length)}, length, text, drops)
				size := packetSize(length, text)
				if drops > 0 {
					size += dropsSize
				}
				if size != len(b) {
					t.Errorf("a block of %d bytes, a comment of %d and %d drops has %d, %d were reserved",
						length, len(text), drops, len(b), size)
				}
			}
		}
	}
}

// TestCopiedDirectionsDontMix: places are reserved under a lock and filled without one.
func TestCopiedDirectionsDontMix(t *testing.T) {
	t.Parallel()
	const packets, size = 4000, 900
	var out buffer
	w := NewWriter(&out, Options{Queue: 1 << 30})
	var sending sync.WaitGroup
	for _, dir := range []Direction{FromGuest, ToGuest} {
		sending.Go(func() {
			for i := range packets / 4 {
				f := func(n int) [][]byte { return [][]byte{bytes.Repeat([]byte{byte(dir)<<4 | byte(n&15)}, size)} }
				w.Packets(dir, inParts{f(i), f(i + 1), f(i + 2)})
				w.Packet(dir, f(i + 3)[0], "alone")
			}
		})
	}
	sending.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := readAll(t, out.Bytes())
	if err != nil || len(all) != 2*packets {
		t.Fatalf("%d packets of %d, %v", len(all), 2*packets, err)
	}
	for i, r := range all {
		if r.Frame[0]>>4 != byte(r.Direction) || !bytes.Equal(r.Frame, bytes.Repeat(r.Frame[:1], size)) {
			t.Fatalf("packet %d has another's bytes: %x", i, r.Frame)
		}
	}
}

func TestBusyCapturesAreComplete(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "busy.pcapng")
	w, err := Create(path, Options{Queue: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	const packets = 3000
	for i := range packets {
		w.Packets(FromGuest, inParts{{frame(i, 1000), bytes.Repeat([]byte{byte(i)}, 1+i%3000)}})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readAll(t, b)
	if err != nil || len(all) != packets {
		t.Fatalf("%d packets of %d, %v", len(all), packets, err)
	}
	for i, r := range all {
		if want := append(frame(i, 1000), bytes.Repeat([]byte{byte(i)}, 1+i%3000)...); !bytes.Equal(r.Frame, want) {
			t.Fatalf("packet %d is not what was captured", i)
		}
	}
}
