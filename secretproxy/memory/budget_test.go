package memory_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/msb-project/msb/secretproxy/memory"
)

// TestI11_NothingIsTakenAfterARelease: an answer that comes when its exchange has ended would else be counted for ever.
func TestI11_NothingIsTakenAfterARelease(t *testing.T) {
	t.Parallel()
	b := memory.New(100)
	h := &memory.Hold{Budget: b}
	if !h.Take(60) || h.Take(60) || b.Used() != 60 {
		t.Fatalf("%d bytes are taken, want 60", b.Used())
	}
	h.Release()
	if h.Take(1) || h.Set(1) || b.Used() != 0 {
		t.Errorf("%d bytes are taken after the release", b.Used())
	}
}

// TestI11_HoldsReturnTheirMemory and no more: what one exchange gives twice would else be room above the bound for others.
func TestI11_HoldsReturnTheirMemory(t *testing.T) {
	t.Parallel()
	b := memory.New(100)
	other, h := &memory.Hold{Budget: b}, &memory.Hold{Budget: b}
	if !other.Take(50) || !h.Take(30) {
		t.Fatal("there is room for both")
	}
	h.Give(20)
	h.Give(20)
	if h.Size() != 0 || b.Used() != 50 {
		t.Errorf("one holds %d bytes and both %d, want 0 and 50", h.Size(), b.Used())
	}
	h.Release()
	h.Give(1)
	if other.Take(51) || b.Used() != 50 || b.Refused() != 1 || !other.Set(100) || !other.Set(10) || b.Used() != 10 {
		t.Errorf("%d bytes are taken, %d times there was no room", b.Used(), b.Refused())
	}
}

// TestI11_ReadAllKeepsItsLimit: it reads and takes one byte above it, by which it learns of more.
func TestI11_ReadAllKeepsItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	for _, size := range []int{0, limit - 1, limit, limit + 1, 4 * limit} {
		h, source := &memory.Hold{Budget: memory.New(1 << 20)}, bytes.NewReader(make([]byte, size))
		got, err := h.ReadAll(source, limit)
		if read := size - source.Len(); read > limit+1 || h.Size() > limit+1 || h.Size() != int64(cap(got)) {
			t.Errorf("of %d bytes %d were read and %d taken, for %d", size, read, h.Size(), cap(got))
		}
		if size <= limit && (err != nil || len(got) != size) || size > limit && !errors.Is(err, memory.ErrTooLong) {
			t.Errorf("of %d bytes %d came: %v", size, len(got), err)
		}
	}
}
