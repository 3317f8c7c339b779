package memory_test

import (
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
