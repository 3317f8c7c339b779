package netstack

import (
	"net"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// stuckLink is a link whose other side doesn't read until it may.
type stuckLink struct{ reads chan struct{} }

// ReadFrame implements Link.
func (l *stuckLink) ReadFrame() ([]byte, error) { return nil, net.ErrClosed }

// WriteFrames implements Link.
func (l *stuckLink) WriteFrames(*Batch) error { <-l.reads; return nil }

// Close implements Link.
func (l *stuckLink) Close() error { return nil }

// TestI11_FramesForStalledGuestsAreBounded: in number if they are small, in bytes if they are large, and
// there is room again once the guest has read.
func TestI11_FramesForStalledGuestsAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, most int }{
		"small frames": {size: 60, most: txFrames},
		"large frames": {size: 64 << 10, most: txBytes / (64 << 10)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := &stuckLink{reads: make(chan struct{})}
			q := newTxQueue(&endpoint{link: link, cnt: &counters{}})
			write := func() bool {
				pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(make([]byte, c.size))})
				defer pkt.DecRef()
				return q.WritePacket(pkt) == nil
			}
			taken := 0
			for taken <= 2*c.most && write() {
				taken++
			}
			// The first is on its way out already.
			if taken < c.most || taken > c.most+1 {
				t.Errorf("%d frames of %d bytes wait, the bound is %d", taken, c.size, c.most)
			}
			close(link.reads)
			for end := time.Now().Add(30 * time.Second); !write(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no room after the guest read")
				}
			}
			q.Close()
		})
	}
}
