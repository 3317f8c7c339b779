package review_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
)

// replayWait bounds each wait for the gateway.
const replayWait = 60 * time.Second

// wire is what passes on a link, seen by its tap, beside what a capture says should pass. A guest that
// does again what the capture's did asks it when to go on. The gateway's sequence numbers are its own, so
// acknowledgements are moved to them.
type wire struct {
	t *testing.T

	mu       sync.Mutex
	changed  chan struct{}
	sent     map[said]int          // the guest's frames
	dropped  map[said]bool         // the guard refused one
	guarded  map[string]int64      // frames that the guard threw away, by reason
	answered map[connection]uint32 // the sequence number of the gateway's SYN-ACK
	over     map[connection]bool   // reset, or its SYN was dropped
	answers  map[uint16]int        // messages from a resolver, by the guest's port
	replied  map[connection]bool   // the gateway sent data, or ended the connection
	pinged   map[netip.Addr]int    // echo replies, by who is said to send them
	numbers  map[connection]numbers
	raw      bool // the guest sends on, whatever it is answered

	// What the capture says, as far as it was played.
	recorded map[connection]uint32
	awaited  map[uint16]int
	pings    map[netip.Addr]int
}

// connection names a TCP connection from the guest's side.
type connection struct {
	port uint16
	peer netip.AddrPort
}

// numbers are how far a connection came for the gateway: what it sends and takes next.
type numbers struct{ seq, ack uint32 }

// said is a connection, or what has its shape in UDP; of a ping it has the address only.
type said struct {
	by capture.Transport
	connection
}

var _ netstack.FrameTap = (*wire)(nil)

func newWire(t *testing.T) *wire {
	return &wire{
		t: t, changed: make(chan struct{}), sent: map[said]int{}, dropped: map[said]bool{}, guarded: map[string]int64{},
		answered: map[connection]uint32{}, over: map[connection]bool{}, answers: map[uint16]int{},
		replied: map[connection]bool{}, pinged: map[netip.Addr]int{}, numbers: map[connection]numbers{},
		recorded: map[connection]uint32{}, awaited: map[uint16]int{}, pings: map[netip.Addr]int{},
	}
}

// Frame implements netstack.FrameTap.
func (w *wire) Frame(dir netstack.Direction, frame []byte, dropped frameguard.Reason) {
	h, ok := capture.Decode(frame)
	if dir == netstack.FromGuest && dropped != "" {
		w.note(func() { w.guarded[string(dropped)]++ })
	}
	switch {
	case !ok || h.Fragment:
	case dir == netstack.ToGuest:
		w.noteReply(&h)
	default:
		c := said{h.Transport, connection{h.Src.Port(), h.Dst}}
		w.note(func() {
			w.sent[c]++
			if dropped != "" {
				w.dropped[c] = true
				w.over[c.connection] = w.over[c.connection] || c.by == capture.TransportTCP // nothing answers its SYN
			}
		})
	}
}

// noteReply notes what the gateway sends.
func (w *wire) noteReply(h *capture.Headers) {
	c := connection{h.Dst.Port(), h.Src}
	tcp := h.Transport == capture.TransportTCP
	if tcp {
		w.note(func() { w.numbers[c] = w.numbers[c].after(h) })
	}
	switch {
	case h.Transport == capture.TransportPing && !h.Request:
		w.note(func() { w.pinged[h.Src.Addr()]++ })
	case h.Src.Port() == 53 && len(h.Payload) > 0 && !h.Refusal:
		w.note(func() { w.answers[c.port] += messages(h) })
	case tcp && (len(h.Payload) > 0 || h.Flags&capture.FIN != 0):
		w.note(func() { w.replied[c] = true })
	case tcp && h.Flags&capture.RST != 0:
		w.note(func() { w.over[c] = true })
	case tcp && h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK:
		w.note(func() { w.answered[c] = h.Seq })
	}
}

// after is n after a segment of the gateway's.
func (n numbers) after(h *capture.Headers) numbers {
	next := h.Seq + uint32(len(h.Payload))
	if h.Flags&(capture.SYN|capture.FIN) != 0 {
		next++
	}
	if h.Flags&capture.SYN != 0 || int32(next-n.seq) > 0 && h.Flags&capture.RST == 0 {
		n.seq = next
	}
	if h.Flags&(capture.ACK|capture.RST) == capture.ACK {
		n.ack = h.Ack
	}
	return n
}

// messages counts the DNS messages of a packet; over TCP each begins with its length.
func messages(h *capture.Headers) (n int) {
	if h.Transport == capture.TransportUDP {
		return 1
	}
	for b := h.Payload; len(b) >= 2; n++ {
		b = b[min(len(b), 2+int(binary.BigEndian.Uint16(b))):]
	}
	return n
}

func (w *wire) note(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait waits until done, and reports whether it came.
func (w *wire) wait(done func() bool) bool { return w.waitFor(replayWait, done) }

func (w *wire) waitFor(limit time.Duration, done func() bool) bool {
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	return w.until(ctx, done)
}

func (w *wire) until(ctx context.Context, done func() bool) bool {
	for {
		w.mu.Lock()
		ok, changed := done(), w.changed
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// eachFrame reads a capture to its end.
func eachFrame(t *testing.T, file []byte, see func(dir capture.Direction, frame []byte, h *capture.Headers, ok bool)) {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(file))
	for err == nil {
		var rec *capture.Record
		if rec, err = r.Next(); err == nil && rec.Kind == capture.PacketRecord {
			h, ok := capture.Decode(rec.Frame)
			see(rec.Direction, rec.Frame, &h, ok)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

// play goes through a capture: it gives the guest's frames to say, and waits where the capture shows that
// the guest did.
func (w *wire) play(file []byte, say func(frame []byte, h *capture.Headers, ok bool)) {
	w.t.Helper()
	eachFrame(w.t, file, func(dir capture.Direction, frame []byte, h *capture.Headers, ok bool) {
		if dir != capture.ToGuest {
			say(bytes.Clone(frame), h, ok)
			return
		}
		if ok && h.Flags&(capture.SYN|capture.ACK) == capture.SYN|capture.ACK {
			w.recorded[connection{h.Dst.Port(), h.Src}] = h.Seq
		}
		if ok && len(h.Payload) > 0 {
			w.await(h)
		}
		if ok && h.Transport == capture.TransportTCP && h.Flags&capture.FIN != 0 {
			w.parted(connection{h.Dst.Port(), h.Src})
		}
	})
}

// parted waits where the capture shows that the gateway ended a connection too: only then has it judged a
// client that left without a word.
func (w *wire) parted(c connection) {
	w.waitFor(2*time.Second, func() bool { return w.replied[c] || w.over[c] })
}

// await holds the guest back where the capture shows an answer: a client that leaves at once asks for
// nothing.
func (w *wire) await(h *capture.Headers) {
	w.t.Helper()
	port, from := h.Dst.Port(), h.Src.Addr()
	switch {
	case h.Transport == capture.TransportPing && !h.Request:
		w.pings[from]++
		if !w.wait(func() bool { return w.pinged[from] >= w.pings[from] }) {
			w.t.Errorf("a ping of %v got no answer", from)
		}
	case h.Src.Port() == 53:
		w.awaited[port] += messages(h)
		if !w.wait(func() bool { return w.answers[port] >= w.awaited[port] }) {
			w.t.Errorf("a question from port %d got no answer", port)
		}
	case h.Transport == capture.TransportTCP:
		c := connection{port, h.Src}
		if !w.wait(func() bool { return w.replied[c] || w.over[c] }) {
			w.t.Errorf("the gateway said nothing to a client of %v that waits for its answer", h.Src)
		}
	}
}

// follow moves the acknowledgement of a frame to the gateway's numbers. It reports false for a frame of
// a connection that the gateway refused: the guest's stack would not have sent it.
func (w *wire) follow(frame []byte, h *capture.Headers) bool {
	c := connection{h.Src.Port(), h.Dst}
	was, open := w.recorded[c]
	if h.Transport != capture.TransportTCP || h.Flags&capture.ACK == 0 || !open {
		return true
	}
	taken := func() bool { _, yes := w.answered[c]; return yes }
	if w.raw {
		w.waitFor(100*time.Millisecond, taken)
	} else if !w.wait(func() bool { return taken() || w.over[c] }) {
		w.t.Errorf("the gateway neither took nor refused a connection to %v", h.Dst)
		return false
	}
	w.mu.Lock()
	is, over := w.answered[c], w.over[c]
	w.mu.Unlock()
	if over && !w.raw {
		return false
	}
	at := 14 + 40
	if frame[14]>>4 == 4 {
		at = 14 + int(frame[14]&15)*4
	}
	ack := binary.BigEndian.Uint32(frame[at+8:])
	replaceTCP(frame[at:], 8, ack-was+is)
	return true
}

// replaceTCP changes four bytes of a TCP header and its checksum with them (RFC 1624), so that one that
// was wrong stays wrong.
func replaceTCP(tcp []byte, at int, v uint32) {
	sum := uint32(^binary.BigEndian.Uint16(tcp[16:]))
	for i := at; i < at+4; i += 2 {
		sum += uint32(^binary.BigEndian.Uint16(tcp[i:]))
	}
	binary.BigEndian.PutUint32(tcp[at:], v)
	for i := at; i < at+4; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(tcp[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
}
