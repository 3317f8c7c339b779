package secretproxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
)

const (
	// wholeMessage is up to where a message is held until it is whole, and sent on
	// as one frame; a longer one goes out in frames of what was read at once.
	wholeMessage = 256 << 10
	// framePiece is how much of a longer message is read at once.
	framePiece = 16 << 10
	// maxFrameGrowth bounds what values may add to what is held of a message at a
	// time: each placeholder may stand for 8 KiB.
	maxFrameGrowth = 1 << 20
)

// errGrowth ends a connection.
var errGrowth = errors.New("with the values in their places a message grows by more than 1 MiB")

// webSocket carries the frames of one connection both ways.
type webSocket struct {
	proxy    *Proxy
	ex       *exchange
	req      *http.Request
	guest    io.ReadWriteCloser
	upstream io.ReadWriteCloser
	// audited are the secrets that the audit log has already; for the guest's way alone.
	audited []string
	// writing keeps a Close frame of ours out of the middle of a server's frame.
	writing sync.Mutex
}

// serve carries frames until both sides are done. Early bytes of the guest are
// in the reader.
func (ws *webSocket) serve(fromGuest io.Reader) {
	var ways sync.WaitGroup
	ways.Go(func() {
		ws.carry(&frameWay{ws: ws, source: bufio.NewReader(fromGuest), to: ws.upstream, fromClient: true})
	})
	ways.Go(func() {
		ws.carry(&frameWay{ws: ws, source: bufio.NewReader(ws.upstream), to: guestWriter{ws}})
	})
	ways.Wait()
}

// guestWriter writes whole frames to the guest.
type guestWriter struct{ ws *webSocket }

// Write implements io.Writer.
func (w guestWriter) Write(b []byte) (int, error) {
	w.ws.writing.Lock()
	defer w.ws.writing.Unlock()
	return w.ws.guest.Write(b)
}

// carry moves frames one way. An end between two frames is passed on as an end;
// anything else ends the connection.
func (ws *webSocket) carry(w *frameWay) {
	err := w.run()
	if errors.Is(err, io.EOF) {
		var to any = ws.guest
		if w.fromClient {
			to = ws.upstream
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
			return
		}
	}
	if fault := w.fault(err); fault != nil {
		ws.refuse(w, fault)
	}
	_ = ws.upstream.Close()
	_ = ws.guest.Close()
}

// frameWay is one direction.
type frameWay struct {
	ws         *webSocket
	source     *bufio.Reader
	to         io.Writer
	fromClient bool

	opcode byte   // of the message that has begun; 0 between messages
	held   []byte // what came of it, until it is whole or too long to wait for
	stream *mask.Stream
	begun  bool // a frame of it went out
	swap   *messageSwap
	place  string   // where a violation was found
	taken  int64    // of the budget, for what is written next
	window maskHold // of stream
}

// run carries frames until the source ends. What follows a Close frame is nothing
// to anybody (section 5.5.1).
func (w *frameWay) run() error {
	for {
		h, err := readFrameHead(w.source, w.fromClient)
		if err != nil {
			return err
		}
		switch {
		case h.control():
			err = w.control(&h)
		case (h.opcode == opContinuation) == (w.opcode == 0):
			return errFrame // it continues nothing, or interrupts a message
		default:
			err = w.data(&h)
		}
		if err != nil {
			return noEOF(err)
		}
		if h.opcode == opClose {
			_, err := io.Copy(io.Discard, w.source)
			return errors.Join(err, io.EOF)
		}
	}
}

// read appends the next n bytes of a payload, of which at were read before. It
// takes memory as they come: the length is only what the other side says.
func (w *frameWay) read(dst []byte, h *frameHead, n, at int64) (_ []byte, err error) {
	from := len(dst)
	for n > 0 {
		step := int(min(n, framePiece))
		if dst, err = w.room(dst, step); err != nil {
			return nil, err
		}
		piece := dst[len(dst) : len(dst)+step]
		if _, err := io.ReadFull(w.source, piece); err != nil {
			return nil, noEOF(err)
		}
		dst, n = dst[:len(dst)+step], n-int64(step)
	}
	if h.masked {
		maskPayload(dst[from:], h.key, at)
	}
	return dst, nil
}

// control passes a Close, Ping or Pong on. Their payloads are for programs too
// (attack: a value in the reason for a Close): a placeholder there is a
// violation, and what holds a value is sent without its payload.
func (w *frameWay) control(h *frameHead) error {
	payload, err := w.read(make([]byte, 0, maxControl), h, h.length, 0)
	if err != nil {
		return err
	}
	if w.fromClient {
		s := newMessageSwap(w, false) // not that of a message which it may interrupt
		if err := s.forbid(payload); err != nil {
			return err
		}
		return w.write(h, payload)
	}
	m := w.ws.proxy.known.newest()
	if _, hits, err := m.set.ReplaceBytes(payload, m.replace); err != nil || hits > 0 {
		w.ws.proxy.counters.masked.Add(1)
		payload = payload[:0]
		if h.opcode == opClose && h.length >= 2 {
			payload = payload[:2]
		}
	}
	return w.write(h, payload)
}

// data takes a frame of a message. Clients hand a message to their programs when
// it has ended, so it is held until then, if it isn't too long.
func (w *frameWay) data(h *frameHead) (err error) {
	if h.opcode != opContinuation {
		w.opcode = h.opcode
	}
	if w.stream == nil && h.length <= int64(wholeMessage-len(w.held)) {
		if w.held, err = w.read(w.held, h, h.length, 0); err != nil || !h.final {
			return err
		}
		return w.whole(h)
	}
	if w.stream == nil {
		w.open()
		if err := w.push(h, w.held, false); err != nil {
			return err
		}
	}
	for at := int64(0); ; {
		n := min(h.length-at, framePiece)
		if w.held, err = w.read(w.held[:0], h, n, at); err != nil {
			return err
		}
		at += n
		if err := w.push(h, w.held, h.final && at == h.length); err != nil || at == h.length {
			return err
		}
	}
}

// whole sends a message that is held, as one frame.
func (w *frameWay) whole(h *frameHead) error {
	set, replace := w.ws.proxy.known.needles()
	if w.fromClient {
		w.swap = newMessageSwap(w, w.opcode == opText && looksLikeJSON(w.held))
		set, replace = w.swap.latest()
	}
	defer w.settle()
	if err := w.take(2 * len(w.held)); err != nil { // for out, and the frame that is made of it
		return err
	}
	out, hits, err := set.ReplaceBytes(w.held, replace)
	if err != nil {
		return err
	}
	if err := w.take(2 * max(0, len(out)-len(w.held))); err != nil {
		return err
	}
	err = w.write(&frameHead{final: true, opcode: w.opcode, masked: h.masked, key: h.key}, out)
	w.end(hits)
	return err
}

// open starts the stream of a message that is too long to be held.
func (w *frameWay) open() {
	if w.fromClient {
		w.swap = newMessageSwap(w, w.opcode == opText && looksLikeJSON(w.held))
		w.stream = mask.NewStream(nil, nil, false).Follow(w.swap.latest)
	} else {
		set, replace := w.ws.proxy.known.needles()
		w.stream = mask.NewAnswerStream(set, replace, true).Follow(w.ws.proxy.known.needles)
	}
	w.window = maskHold{held: w.ws.ex.held, stream: w.stream}
}

// push sends the next piece of such a message, as far as nothing of it has to be
// held back.
func (w *frameWay) push(h *frameHead, piece []byte, last bool) error {
	if w.swap != nil {
		w.swap.grown = 0
	}
	defer w.settle()
	if !w.window.take() {
		return memory.ErrFull
	}
	if err := w.take(2 * len(piece)); err != nil {
		return err
	}
	out, err := w.stream.Push(nil, piece, last)
	if err != nil || len(out) == 0 && !last {
		return err
	}
	if err := w.take(2 * max(0, len(out)-len(piece))); err != nil {
		return err
	}
	head := frameHead{final: last, masked: h.masked, key: h.key}
	if !w.begun {
		head.opcode, w.begun = w.opcode, true
	}
	err = w.write(&head, out)
	if last {
		w.end(w.stream.Hits())
	}
	return err
}

func (w *frameWay) write(h *frameHead, payload []byte) error {
	_, err := w.to.Write(appendFrame(nil, h, payload))
	return err
}

// end ends a message.
func (w *frameWay) end(hits int) {
	if w.fromClient {
		w.swap.done()
	} else {
		w.ws.proxy.counters.masked.Add(uint64(hits))
	}
	w.shrink()
	w.opcode, w.held, w.stream, w.begun, w.swap = 0, w.held[:0], nil, false, nil
}
