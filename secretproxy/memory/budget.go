package memory

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// ErrFull says that the budget is used up.
var ErrFull = errors.New("the sandbox's requests and answers hold as much of the proxy's memory as they may")

// Budget counts bytes against a limit.
type Budget struct {
	limit   int64
	used    atomic.Int64
	refused atomic.Uint64
}

// New returns a budget of limit bytes.
func New(limit int64) *Budget { return &Budget{limit: limit} }

// Limit is how many bytes there are in all.
func (b *Budget) Limit() int64 { return b.limit }

// Used is how many of them are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// Refused is how often there was no room.
func (b *Budget) Refused() uint64 { return b.refused.Load() }

// Take asks for n bytes.
func (b *Budget) Take(n int64) bool {
	if b.used.Add(n) <= b.limit {
		return true
	}
	b.used.Add(-n)
	b.refused.Add(1)
	return false
}

// Give returns n bytes.
func (b *Budget) Give(n int64) { b.used.Add(-n) }

// Hold is what one exchange, body or connection has taken. The zero value and nil take without a bound, for
// readers of captures. It is safe for concurrent use.
type Hold struct {
	Budget *Budget
	mu     sync.Mutex
	n      int64
	over   bool
}

// Take asks for n more bytes.
func (h *Hold) Take(n int64) bool {
	if h == nil || h.Budget == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || !h.Budget.Take(n) {
		return false
	}
	h.n += n
	return true
}

// Give returns n bytes.
func (h *Hold) Give(n int64) {
	if h == nil || h.Budget == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, h.n)
	h.n -= n
	h.Budget.Give(n)
}

// Size is how many bytes are taken.
func (h *Hold) Size() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n
}

// Set makes it n bytes altogether.
func (h *Hold) Set(n int64) bool {
	if h == nil {
		return true
	}
	have := h.Size()
	if n > have {
		return h.Take(n - have)
	}
	h.Give(have - n)
	return true
}

// Release returns all, for good: what comes too late finds nothing to take.
func (h *Hold) Release() {
	if h == nil || h.Budget == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Budget.Give(h.n)
	h.n, h.over = 0, true
}

// ErrTooLong says that there is more than ReadAll was to read.
var ErrTooLong = errors.New("longer than it may be")

// ReadAll reads r whole, limit bytes at most, and takes what it allocates. What it returns stays taken: its
// capacity is what to give.
func (h *Hold) ReadAll(r io.Reader, limit int64) ([]byte, error) {
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			if int64(len(buf)) > limit {
				return buf, ErrTooLong
			}
			size := min(max(4<<10, 2*int64(cap(buf))), limit+1)
			if !h.Take(size) {
				return buf, ErrFull
			}
			grown := make([]byte, len(buf), size)
			copy(grown, buf)
			clear(buf)
			h.Give(int64(cap(buf)))
			buf = grown
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if errors.Is(err, io.EOF) {
			if int64(len(buf)) > limit {
				return buf, ErrTooLong
			}
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}
