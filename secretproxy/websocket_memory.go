package secretproxy

import "github.com/msb-project/msb/secretproxy/memory"

// What a WebSocket holds is taken from the sandbox's budget (invariant 11): a message until it is whole, the window in
// which a long one is searched, and what is written until the other side has read it.

// take asks the sandbox's budget for n bytes until the next settle.
func (w *frameWay) take(n int) error {
	if !w.ws.ex.held.Take(int64(n)) {
		return memory.ErrFull
	}
	w.taken += int64(n)
	return nil
}

// settle gives back what was taken.
func (w *frameWay) settle() {
	w.ws.ex.held.Give(w.taken)
	w.taken = 0
}

// room returns b with room for n more bytes, taken from the budget.
func (w *frameWay) room(b []byte, n int) ([]byte, error) {
	if cap(b)-len(b) >= n {
		return b, nil
	}
	size := max(len(b)+n, min(2*cap(b), wholeMessage))
	if !w.ws.ex.held.Take(int64(size)) {
		return nil, memory.ErrFull
	}
	grown := append(make([]byte, 0, size), b...)
	w.ws.ex.held.Give(int64(cap(b)))
	return grown, nil
}

// shrink gives back what a message held: a connection that waits keeps little.
func (w *frameWay) shrink() {
	if cap(w.held) > framePiece {
		w.ws.ex.held.Give(int64(cap(w.held)))
		w.held = nil
	}
	w.ws.ex.held.Give(w.window.taken)
	w.window = maskHold{}
}
