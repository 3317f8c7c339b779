package secretproxy

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// halfClose lets a guest read the answer after it has closed its side of an HTTP/1 connection. net/http reads on while a
// handler runs, and cancels the request at the first error, such as the end of the guest's bytes.
type halfClose struct {
	mu        sync.Mutex
	answering bool          // net/http is at a request
	past      bool          // the read deadline is
	expired   chan struct{} // closed once it is; nil while no read waits
	progress  time.Time     // of the last write
}

// setAnswering is called as net/http begins and ends a request.
func (h *halfClose) setAnswering(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answering, h.progress = on, time.Now()
}

// wrote notes that the guest's side took bytes.
func (h *halfClose) wrote() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.progress = time.Now()
}

// deadline follows SetReadDeadline: net/http ends a pending read with one in the past.
func (h *halfClose) deadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.past = !t.IsZero() && !t.After(time.Now())
	h.expire()
}

// expire wakes the reads that wait, if the deadline is past.
func (h *halfClose) expire() {
	if h.past && h.expired != nil {
		close(h.expired)
		h.expired = nil
	}
}

// look returns what a waiting read needs.
func (h *halfClose) look(limit time.Duration) (expired <-chan struct{}, left time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.answering {
		return nil, 0
	}
	if h.expired == nil {
		h.expired = make(chan struct{})
	}
	expired = h.expired
	h.expire()
	return expired, limit - time.Since(h.progress)
}

// awaitAnswer holds the end of the guest's bytes back until the answer is written, the connection or its flow
// is closed, or nothing was written for halfCloseTimeout: a guest that closed both sides looks the same until
// a write to it fails. After a request for an upgrade nothing is held back: what came behind it takes memory.
func (c *strictConn) awaitAnswer(end error) error {
	if !errors.Is(end, io.EOF) && !errors.Is(end, io.ErrUnexpectedEOF) {
		return end
	}
	for {
		expired, left := c.half.look(c.proxy.cfg.halfClose)
		if left <= 0 {
			return end
		}
		timer := time.NewTimer(left)
		select {
		case <-expired:
			timer.Stop()
			return os.ErrDeadlineExceeded
		case <-c.guest.done:
		case <-c.guest.revoked:
		case <-timer.C:
			continue
		}
		timer.Stop()
		return end
	}
}
