package secretproxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/msb-project/msb/secretproxy/memory"
)

// responseWriter is the guest's side of an exchange: it tells the length where
// that is known and flushes every piece where even the server doesn't know it, so that streams stay
// streams.
type responseWriter struct {
	http.ResponseWriter
	length int64 // of the body; -1 if unknown
	// unsized keeps net/http from counting a short body and sending its length.
	unsized bool
	live    bool // the server doesn't know its length either: pieces are news
	failed  bool // the upstream's body broke off
	last    bool // the guest's connection ends with this answer

	mu    sync.Mutex // hints come from the transport's goroutine
	begun bool       // the answer, after which no hint may come
}

var (
	_ http.Flusher  = (*responseWriter)(nil)
	_ io.ReaderFrom = (*responseWriter)(nil)
)

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	w.endHints()
	if w.length >= 0 && !bodyless(status) {
		// goproxy removes the length of a body that was replaced.
		w.Header()["Content-Length"] = []string{strconv.FormatInt(w.length, 10)}
	}
	if w.unsized && w.length < 0 {
		w.Header()["Content-Length"] = nil
	}
	if w.last {
		w.Header()["Connection"] = []string{"close"}
	}
	if _, ok := w.Header()["Date"]; !ok {
		w.Header()["Date"] = nil // the upstream's answer, not ours
	}
	if _, ok := w.Header()["Content-Type"]; !ok {
		w.Header()["Content-Type"] = nil // no guessing by net/http
	}
	w.ResponseWriter.WriteHeader(status)
	if w.live {
		// A stream's head is news by itself: a gRPC client waits for it before
		// it sends its first message.
		w.Flush()
	}
}

// Write implements io.Writer.
func (w *responseWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	if err == nil && w.live {
		w.Flush()
	}
	return n, err
}

// copySize is four TLS records at a time: less costs system calls, more
// memory for each download under way.
const copySize = 64 << 10

// copyBuffers are reused across responses.
var copyBuffers = sync.Pool{New: func() any { return new([copySize]byte) }}

// ReadFrom implements io.ReaderFrom.
func (w *responseWriter) ReadFrom(r io.Reader) (int64, error) {
	buf, _ := copyBuffers.Get().(*[copySize]byte)
	defer copyBuffers.Put(buf)
	total := int64(0)
	for {
		n, err := r.Read(buf[:])
		if n > 0 {
			written, writeErr := w.Write(buf[:n])
			total += int64(written)
			if writeErr != nil {
				return total, writeErr
			}
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// endHints keeps later hints out. It comes before anything touches the header
// of the answer: a transport that has given up goes on reading hints, and two
// writers of one map end the process (attack: a server that sends 103 without
// end, to a guest that breaks its request off).
func (w *responseWriter) endHints() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// hint writes an informational response.
func (w *responseWriter) hint(status int, h http.Header) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		return
	}
	header := w.Header()
	for k, v := range h {
		header[k] = v
	}
	w.ResponseWriter.WriteHeader(status)
	clear(header)
}

// errFirstSecret ends answers that began when the sandbox had no secret, and so go out unsearched.
var errFirstSecret = errors.New("a reload brought the sandbox's first secret")

// checkedBody notes when an upstream's body breaks off, or is broken off here.
type checkedBody struct {
	io.ReadCloser
	proxy *Proxy
	ex    *exchange
	resp  *http.Response
	ended bool
}

// Read implements io.Reader.
func (b *checkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.ex.masked && b.proxy.known.masks() {
		n, err = 0, errFirstSecret
	}
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		if !b.ex.held.Take(2 * headSize(b.resp.Trailer)) {
			err = memory.ErrFull
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.ex.out.failed = true
		var violation *errViolation
		switch {
		case errors.As(err, &violation) && violation.refusal.secret == "": // others are reported where they are found
			b.proxy.auditRefusal(b.ex, violation.refusal)
		case errors.Is(err, errMessage):
			b.proxy.auditRefusal(b.ex, unmaskable())
		case errors.Is(err, memory.ErrFull):
			b.proxy.auditRefusal(b.ex, memoryFull())
		}
	}
	return n, err
}

func newBytesBody(b []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
