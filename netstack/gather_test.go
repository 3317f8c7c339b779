package netstack_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// ordered is a BatchTap that writes down which of the guest's frames it saw, by their last byte.
type ordered struct{ seen, batches []int }

var _ netstack.BatchTap = (*ordered)(nil)

// Frame implements FrameTap.
func (o *ordered) Frame(dir netstack.Direction, frame []byte, _ frameguard.Reason) {
	if dir == netstack.FromGuest {
		o.seen = append(o.seen, int(frame[len(frame)-1]))
	}
}

// Frames implements BatchTap.
func (o *ordered) Frames(dir netstack.Direction, frames *netstack.Batch) {
	if dir != netstack.FromGuest {
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

// TestBatchedFramesKeepTheirOrder: also around those that the guard drops.
func TestBatchedFramesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	const frames, dropped = 100, 40
	link := frameguard.Default()
	guestMAC, otherMAC := net.HardwareAddr{2, 0, 0, 0, 0, 2}, net.HardwareAddr{2, 0, 0, 0, 0, 9}
	from, to := netip.AddrPortFrom(link.Guest4, 7), netip.AddrPortFrom(link.Gateway4, 9)
	var in []byte
	var want []int
	for i := range frames {
		src := guestMAC
		if i == dropped {
			src = otherMAC
		}
		f := ethBetween(src, link.GatewayMAC, ipv4(link.Guest4, link.Gateway4, 17, udp(from, to, []byte{byte(i)})))
		in = append(binary.BigEndian.AppendUint32(in, uint32(len(f))), f...)
		want = append(want, i)
	}
	tap := &ordered{}
	s, err := netstack.New(netstack.Config{GuestMAC: guestMAC, Handler: &netstacktest.Handler{}, Tap: tap})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), netstack.NewStreamLink(stream{bytes.NewReader(in)})); err != nil {
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
