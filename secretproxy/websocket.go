package secretproxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/mask"
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
	// Reasons for a Close frame (RFC 6455, section 7.4.1).
	closeProtocol = 1002
	closePolicy   = 1008
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
	// told are secrets in the audit log already; for the guest's way alone.
	told []string
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

// fault is the refusal for what ended a way; nil if the network did.
func (w *frameWay) fault(err error) *refusal {
	var violation *errViolation
	switch {
	case errors.As(err, &violation):
		return violation.refusal
	case !errors.Is(err, errFrame) && !errors.Is(err, errGrowth):
		return nil
	case w.fromClient:
		return &refusal{status: http.StatusBadRequest, code: "websocket", message: err.Error()}
	}
	return &refusal{status: http.StatusBadGateway, code: "upstream_protocol", cause: "protocol", message: err.Error()}
}

// refuse tells the guest and the audit log why the connection ends.
func (ws *webSocket) refuse(w *frameWay, fault *refusal) {
	ex := *ws.ex
	ex.place = w.place
	ws.proxy.auditRefusal(&ex, fault)
	ws.proxy.violated(&ex, fault)
	code := uint16(closeProtocol)
	if fault.secret != "" {
		code = closePolicy
	}
	payload := append([]byte{byte(code >> 8), byte(code)}, fault.code...)
	_, _ = guestWriter{ws}.Write(appendFrame(nil, &frameHead{final: true, opcode: opClose}, payload))
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
	place  string // where a violation was found
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
func (w *frameWay) read(dst []byte, h *frameHead, n, at int64) ([]byte, error) {
	from := len(dst)
	for n > 0 {
		step := int(min(n, framePiece))
		dst = slices.Grow(dst, step)
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
	payload, err := w.read(nil, h, h.length, 0)
	if err != nil {
		return err
	}
	if w.fromClient {
		s := newMessageSwap(w, false) // not that of a message which it may interrupt
		if _, _, err := s.finder().ReplaceBytes(payload, s.forbid); err != nil {
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
		set, replace = w.swap.finder(), w.swap.replace
	}
	out, hits, err := set.ReplaceBytes(w.held, replace)
	if err != nil {
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
		w.stream = mask.NewStream(w.swap.finder(), w.swap.replace, false)
		return
	}
	set, replace := w.ws.proxy.known.needles()
	w.stream = mask.NewAnswerStream(set, replace, true).Follow(w.ws.proxy.known.needles)
}

// push sends the next piece of such a message, as far as nothing of it has to be
// held back.
func (w *frameWay) push(h *frameHead, piece []byte, last bool) error {
	if w.swap != nil {
		w.swap.grown = 0
	}
	out, err := w.stream.Push(nil, piece, last)
	if err != nil || len(out) == 0 && !last {
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
	if cap(w.held) > framePiece {
		w.held = nil // a connection that waits keeps little
	}
	w.opcode, w.held, w.stream, w.begun, w.swap = 0, w.held[:0], nil, false, nil
}

// looksLikeJSON reports whether a text begins as an object or array of JSON does,
// within which a value is escaped.
func looksLikeJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && (text[0] == '{' || text[0] == '[')
}

// messageSwap puts values into one message of the guest's.
type messageSwap struct {
	way     *frameWay
	swapper *swapper
	escape  func([]byte) []byte
	grown   int
}

// newMessageSwap looks at the secrets as they are when a message begins: a
// connection outlives rotations and reloads.
func newMessageSwap(w *frameWay, json bool) *messageSwap {
	ws := w.ws
	ex := *ws.ex
	ex.state = ws.proxy.state.Load()
	ex.table, ex.used = ex.state.table.Load(), nil
	s := &messageSwap{way: w, swapper: &swapper{proxy: ws.proxy, ex: &ex, req: ws.req}}
	if json {
		s.escape = jsonEscape
	}
	return s
}

func (s *messageSwap) finder() *mask.Set { return s.swapper.ex.table.finder }

// replace is a mask.Replacer for the payload of a message.
func (s *messageSwap) replace(h mask.Hit) ([]byte, error) {
	value, err := s.swapper.value(&h, policies.Place{Kind: policies.InWebSocket}, "websocket", s.escape)
	s.way.place = s.swapper.ex.place
	if s.grown += len(value); err == nil && s.grown > maxFrameGrowth {
		return nil, errGrowth
	}
	return value, err
}

// forbid is a mask.Replacer for control frames.
func (s *messageSwap) forbid(h mask.Hit) ([]byte, error) {
	s.swapper.violation(h.Needle, "websocket control frame", "")
	s.way.place = s.swapper.ex.place
	return nil, &errViolation{s.swapper.fault}
}

// done tells the audit log of values that went out, each once for a connection.
func (s *messageSwap) done() {
	ws, ex := s.way.ws, s.swapper.ex
	fresh := slices.DeleteFunc(ex.used, func(e *entry) bool {
		name := e.holder.Policy().Name
		if slices.Contains(ws.told, name) {
			return true
		}
		ws.told = append(ws.told, name)
		return false
	})
	ws.proxy.auditSwaps(ex, fresh)
}
