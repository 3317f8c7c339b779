package gateway

import (
	"bytes"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

const (
	// maxAwaited bounds the flows whose verdict or whose packet is waited for. A guest that opens more
	// at a time loses comments, not packets.
	maxAwaited = 4096
	// maxLate bounds the comments that wait for one flow's next packet, maxLateBytes those of all flows.
	maxLate      = 128
	maxLateBytes = 8 << 20
	// maxPath bounds the path that a comment holds. A longer one is left out: a part of it would be
	// another path.
	maxPath = 2 << 10
)

// CaptureTap writes a sandbox's frames to a capture with the gateway's verdicts beside them. Give it to
// Config.Capture; Start it, with nil to stop, at any time.
//
// A verdict is a comment on the flow's first packet; on the client's connection to the explicit proxy for
// what was asked of that. The packet passes before there is a verdict, and
// the writer gathers packets for a moment, so most verdicts still find it; where one comes later (it
// waited for a ClientHello, say) it goes to the flow's next packet. So do the verdicts on the requests of
// an inspected flow. DNS answers become name records.
type CaptureTap struct {
	writer atomic.Pointer[capture.Writer]

	mu sync.Mutex
	// first holds the flows that have no verdict yet.
	first map[flowKey]capture.Ticket
	// late holds verdicts whose packet was written already; some counts them, so that the frame path
	// needs no lock while there is none.
	late      map[flowKey]*lateComments
	lateBytes int
	some      atomic.Int32
	// forgotten is how many comments were dropped with their flows: the next packet that gets comments tells it.
	forgotten int
}

// lateComments wait for a flow's next packet.
type lateComments struct {
	texts []string
	bytes int
	lost  int // beyond the bounds
}

var _ netstack.BatchTap = (*CaptureTap)(nil)

// flowKey is what a packet and an audit event both know of a flow.
type flowKey struct {
	proto   capture.Transport
	srcPort uint16
	dst     netip.AddrPort
}

// NewCaptureTap returns a CaptureTap that is stopped.
func NewCaptureTap() *CaptureTap {
	return &CaptureTap{first: make(map[flowKey]capture.Ticket), late: make(map[flowKey]*lateComments)}
}

// Start sends frames to w from now on, and returns the writer before it, if any, for the caller to
// close. A nil w stops. Verdicts that still wait for a packet are in no capture: the old one's end counts them.
func (c *CaptureTap) Start(w *capture.Writer) *capture.Writer {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.writer.Swap(w) // under the lock: no ticket of the old one's is to meet the new one
	clear(c.first)
	c.forgetLate()
	if old != nil {
		old.LoseVerdicts(c.forgotten)
	}
	c.forgotten = 0
	return old
}

// forgetLate drops the comments that wait, and counts them; the caller holds mu.
func (c *CaptureTap) forgetLate() {
	for _, late := range c.late {
		c.forgotten += len(late.texts) + late.lost
	}
	clear(c.late)
	c.lateBytes = 0
	c.some.Store(0)
}

// keyLog is where the keys of the guest's sessions go; nil without a capture, as crypto/tls wants it.
func (c *Config) keyLog() io.Writer {
	if c.Capture == nil {
		return nil
	}
	return keyLog{c.Capture}
}

// keyLog is an io.Writer that puts TLS keys into the capture.
type keyLog struct{ c *CaptureTap }

// Write implements io.Writer. It never fails: a capture must not end a handshake.
func (k keyLog) Write(p []byte) (int, error) {
	if w := k.c.writer.Load(); w != nil {
		w.TLSKeys(p)
	}
	return len(p), nil
}

// Frame implements netstack.FrameTap.
func (c *CaptureTap) Frame(dir netstack.Direction, frame []byte, dropped frameguard.Reason) {
	w := c.writer.Load()
	if w == nil {
		return
	}
	if dropped != "" {
		text := ""
		if dropped != frameguard.DropQuiet.Reason() {
			text = "msb: dropped by the frame guard: " + string(dropped)
		}
		w.Packet(direction(dir), frame, text)
		return
	}
	t := w.Packet(direction(dir), frame, "")
	if c.some.Load() == 0 && (dir == netstack.ToGuest || capture.ContinuesTCP(frame)) {
		return
	}
	c.match(w, dir, frame, t)
}

// Frames implements netstack.BatchTap.
func (c *CaptureTap) Frames(dir netstack.Direction, frames *netstack.Batch) {
	w := c.writer.Load()
	if w == nil {
		return
	}
	some := c.some.Load() > 0 // one of them may be waited for
	from := 0
	for i := range frames.Len() {
		if !some && (dir == netstack.ToGuest || capture.ContinuesTCP(frames.Frame(i)[0])) {
			continue
		}
		w.Packets(direction(dir), run{frames, from, i})
		c.Frame(dir, bytes.Join(frames.Frame(i), nil), "")
		from = i + 1
	}
	w.Packets(direction(dir), run{frames, from, frames.Len()})
}

// run is the frames from one up to another of a batch.
type run struct {
	batch    *netstack.Batch
	from, to int
}

var _ capture.Frames = run{}

// Len implements capture.Frames.
func (r run) Len() int { return r.to - r.from }

// Frame implements capture.Frames.
func (r run) Frame(i int) [][]byte { return r.batch.Frame(r.from + i) }

func direction(d netstack.Direction) capture.Direction {
	if d == netstack.ToGuest {
		return capture.ToGuest
	}
	return capture.FromGuest
}

// match ties a packet to a verdict that came or will come.
func (c *CaptureTap) match(w *capture.Writer, dir netstack.Direction, frame []byte, t capture.Ticket) {
	h, ok := capture.Decode(frame)
	opens := dir == netstack.FromGuest && (h.Transport != capture.TransportTCP || h.Flags&(capture.SYN|capture.ACK) == capture.SYN)
	if !ok || !opens && c.some.Load() == 0 {
		return
	}
	key := flowKey{h.Transport, h.Src.Port(), h.Dst}
	if dir == netstack.ToGuest && !h.Refusal {
		key = flowKey{h.Transport, h.Dst.Port(), h.Src}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writer.Load() != w {
		return // a ticket of another capture's would point into the middle of something there
	}
	if c.late[key] != nil {
		c.handOver(w, t, key)
		return
	}
	if opens {
		if len(c.first) >= maxAwaited {
			clear(c.first) // mostly datagrams of flows that were judged long ago
		}
		c.first[key] = t
	}
}

// handOver puts the comments that wait for a flow on its packet. Those for which the packet is lost, or on its way
// to the disk already, wait on; the caller holds mu.
func (c *CaptureTap) handOver(w *capture.Writer, t capture.Ticket, key flowKey) {
	late := c.late[key]
	for len(late.texts) > 0 {
		first := late.texts[0]
		if !w.Annotate(t, first) {
			return
		}
		late.texts = late.texts[1:]
		late.bytes -= len(first)
		c.lateBytes -= len(first)
	}
	if lost := late.lost + c.forgotten; lost > 0 {
		if !w.Annotate(t, capture.LostVerdicts(lost)) {
			return
		}
		c.forgotten = 0
	}
	delete(c.late, key)
	c.some.Store(int32(len(c.late)))
}
