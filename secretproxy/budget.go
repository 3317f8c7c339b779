package secretproxy

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// What one sandbox can make this process hold (invariant 11). Everything whose size a guest or a server
// chooses is taken from one budget before it is held; what doesn't fit is refused with 503.
const (
	// memoryLimit is the budget: room for the largest requests and answers that are taken, a few at a time,
	// or for 512 small exchanges at once. The spellings of values are part of it.
	memoryLimit = 64 << 20
	// headCost is added for each field of a head: strings, slices and the map's own room.
	headCost = 64
	// connCost is what a connection over HTTP/2 holds of a head that has not ended.
	connCost = maxHeadBytes
	// maxSwappedHead bounds a head after values were put in: one of 64 KiB has room for 3,000 placeholders,
	// each of which may stand for 8 KiB.
	maxSwappedHead = 1 << 20
	// maskCost is what searching a stream holds beside the stream's own window: a piece of 64 KiB, and
	// what its escapes are undone into.
	maskCost = 192 << 10
	// brotliCost and zstdCost are the decoders' windows with their slack: 16 MiB (RFC 7932, section 9.1), and
	// 8 MiB (RFC 8878, section 3.1.1.1.2) with a copy.
	brotliCost = 18 << 20
	zstdCost   = 20 << 20
	// flateCost is the window of gzip and deflate (RFC 1951) and the decoder's tables.
	flateCost = 64 << 10
)

// errMemory says that the budget is used up.
var errMemory = errors.New("the sandbox's requests and answers hold as much of the proxy's memory as they may")

// memoryFull is the answer at the bound.
func memoryFull() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: "memory", message: errMemory.Error() + "; repeat the request when others have ended"}
}

// budget counts bytes against a limit.
type budget struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	b.refused.Add(1)
	return false
}

// hold is what one exchange, body or connection has taken. The zero value and nil take without a bound, for
// readers of captures. It is safe for concurrent use.
type hold struct {
	budget *budget
	mu     sync.Mutex
	n      int64
	over   bool
}

// take asks for n more bytes.
func (h *hold) take(n int64) bool {
	if h == nil || h.budget == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || !h.budget.take(n) {
		return false
	}
	h.n += n
	return true
}

// give returns n bytes.
func (h *hold) give(n int64) {
	if h == nil || h.budget == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.n)
	h.n -= n
	h.budget.used.Add(-n)
}

// size is how many bytes are taken.
func (h *hold) size() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// set makes it n bytes altogether.
func (h *hold) set(n int64) bool {
	if h == nil {
		return true
	}
	have := h.size()
	if n > have {
		return h.take(n - have)
	}
	h.give(have - n)
	return true
}

// release returns all, for good: what comes too late finds nothing to take.
func (h *hold) release() {
	if h == nil || h.budget == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.budget.used.Add(-h.n)
	h.n, h.over = 0, true
}

// errTooLong says that there is more than readAll was to read.
var errTooLong = errors.New("longer than it may be")

// readAll reads r whole, limit bytes at most, and takes what it allocates. What it returns stays taken: its
// capacity is what to give.
func (h *hold) readAll(r io.Reader, limit int64) ([]byte, error) {
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) > limit {
				return buf, errTooLong
			}
			size := min(max(4<<10, 2*int64(cap(buf))), limit+1)
			if !h.take(size) {
				return buf, errMemory
			}
			grown := make([]byte, len(buf), size)
			copy(grown, buf)
			clear(buf)
			h.give(int64(cap(buf)))
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			if int64(len(buf)) > limit {
				return buf, errTooLong
			}
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// headSize is about what a head takes.
func headSize(h http.Header) int64 {
	n := int64(0)
	for name, values := range h {
		n += headCost + int64(len(name))
		for _, v := range values {
			n += headCost + int64(len(v))
		}
	}
	return n
}

// holdAnswer takes the room for an answer's head, and for what waits of its body while the guest doesn't read.
func (ex *exchange) holdAnswer(resp *http.Response) bool {
	n := 2 * headSize(resp.Header)
	if resp.Body != nil && resp.Body != http.NoBody {
		n += copySize
		if resp.ProtoMajor == 2 {
			n += waiting(resp.ContentLength)
		}
	}
	return ex.held.take(n)
}

// waiting is how much of a body of that length may wait in the transport.
func waiting(length int64) int64 {
	if length < 0 {
		return streamWindow
	}
	return min(length, streamWindow)
}

// decoderCost is what undoing those encodings holds.
func decoderCost(encodings string) int64 {
	n := int64(0)
	for _, name := range strings.Split(encodings, ",") {
		switch name {
		case "":
		case "br":
			n += brotliCost
		case "zstd":
			n += zstdCost
		default:
			n += flateCost
		}
	}
	return n
}
