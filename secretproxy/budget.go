package secretproxy

import (
	"io"
	"net/http"
	"strings"

	"github.com/msb-project/msb/secretproxy/mask"
	"github.com/msb-project/msb/secretproxy/memory"
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
	// maxAnswerHead bounds an answer's head, its trailers and each of its hints: what Envoy takes from a server (60 KiB),
	// and more than Node's clients (16 KiB) or nginx (8 KiB) do.
	maxAnswerHead = 64 << 10
	// answerHeadCost is what is taken before a request goes out: a head over HTTP/2, and later its trailers, are whole
	// before anybody here sees them. Each of its fields counts 32 bytes of maxAnswerHead (RFC 9113, section 6.5.2).
	answerHeadCost = maxAnswerHead
	// maxSwappedHead bounds a head after values were put in: one of 64 KiB has room for 3,000 placeholders,
	// each of which may stand for 8 KiB.
	maxSwappedHead = 1 << 20
	// maskCost is the memory of a search besides the stream's own window: a piece of 64 KiB, and its unescaped form.
	maskCost = 192 << 10
	// brotliCost and zstdCost are the decoders' windows with their slack: 16 MiB (RFC 7932, section 9.1), and
	// 8 MiB (RFC 8878, section 3.1.1.1.2) with a copy.
	brotliCost = 18 << 20
	zstdCost   = 20 << 20
	// flateCost is the window of gzip and deflate (RFC 1951) and the decoder's tables.
	flateCost = 64 << 10
)

// memoryFull is the answer at the bound.
func memoryFull() *refusal {
	return &refusal{status: http.StatusServiceUnavailable, code: "memory", message: memory.ErrFull.Error() + "; repeat the request when others have ended"}
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

// holdHead takes the room for an answer's head, and gives back what was reserved before its size was known. Over HTTP/2 its
// trailers may come while nobody reads its body; over HTTP/1 they are read at the end of it.
func (ex *exchange) holdHead(resp *http.Response) bool {
	defer ex.endHead()
	if resp.ProtoMajor == 1 {
		defer ex.held.Give(answerHeadCost)
		return ex.held.Take(2 * headSize(resp.Header))
	}
	return ex.held.Take(2*headSize(resp.Header) + answerHeadCost)
}

// holdAnswer takes the room for an answer's head, and for the part of its body that waits while the guest doesn't read.
func (ex *exchange) holdAnswer(resp *http.Response) bool {
	n := int64(0)
	if resp.Body != nil && resp.Body != http.NoBody {
		n += copySize
		if resp.ProtoMajor == 2 {
			n += waiting(resp.ContentLength)
		}
	}
	return ex.holdHead(resp) && ex.held.Take(n)
}

// maskHold is what a stream that is searched holds.
type maskHold struct {
	held   *memory.Hold
	stream *mask.Stream
	taken  int64
}

// take takes the room for the stream, or the additional room that it needs now: it grows with the longest value (attack: a
// mint of 8 KiB while many answers are under way).
func (h *maskHold) take() bool {
	more := maskCost + int64(h.stream.Bound()) - h.taken
	if more <= 0 {
		return true
	}
	if !h.held.Take(more) {
		return false
	}
	h.taken += more
	return true
}

// heldSource is what such a stream reads.
type heldSource struct {
	io.Reader
	hold *maskHold
}

// Read implements io.Reader.
func (s *heldSource) Read(p []byte) (int, error) {
	if !s.hold.take() {
		return 0, memory.ErrFull
	}
	return s.Reader.Read(p)
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
