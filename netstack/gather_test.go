package netstack

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"
)

// ordered is a BatchTap that writes down which of the guest's frames it saw, by their last byte.
type ordered struct{ seen, batches []int }

var _ BatchTap = (*ordered)(nil)

// Frame implements FrameTap.
func (o *ordered) Frame(dir Direction, frame []byte, _ DropReason) {
	if dir == FromGuest {
		o.seen = append(o.seen, int(frame[len(frame)-1]))
	}
}

// Frames implements BatchTap.
func (o *ordered) Frames(dir Direction, frames *Batch) {
	if dir != FromGuest {
		return
	}
	o.batches = append(o.batches, frames.Len())
	for i := range frames.Len() {
		o.Frame(dir, bytes.Join(frames.Frame(i), nil), "")
	}
}

// stream is a link's socket that delivers what was written at once, then ends.
type stream struct{ io.Reader }

func (stream) Write(p []byte) (int, error) { return len(p), nil }
func (stream) Close() error                { return nil }

// TestFramesThatCameTogetherReachTheTapTogetherAndInOrder: also around those that the guard drops.
func TestFramesThatCameTogetherReachTheTapTogetherAndInOrder(t *testing.T) {
	t.Parallel()
	const frames, dropped = 100, 40
	var in []byte
	var want []int
	for i := range frames {
		src := guestMAC
		if i == dropped {
			src = strangerMAC
		}
		f := frame(gwMAC, src, 0x0800, v4(g4, gw4, 17, append(ports(7, 9), byte(i))))
		binary.BigEndian.PutUint16(f[14+2:], uint16(len(f)-14))
		in = append(binary.BigEndian.AppendUint32(in, uint32(len(f))), f...)
		want = append(want, i)
	}
	tap := &ordered{}
	s, err := New(Config{GuestMAC: guestMAC, Handler: nobody{}, Tap: tap})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), NewStreamLink(stream{bytes.NewReader(in)})); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tap.seen, want) {
		t.Errorf("the tap saw %v", tap.seen)
	}
	if want := []int{dropped, frames - dropped - 1}; !slices.Equal(tap.batches, want) {
		t.Errorf("batches of %v, want %v", tap.batches, want)
	}
}
