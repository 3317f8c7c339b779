package mask

import (
	"fmt"
	"strings"
	"testing"
)

// TestI11_AlikeValuesAreReadOnce: values of the longest kind that differ at their end, and a text that begins like all
// of them at each place. Comparing it with each of them would take 8 KiB for each value and place.
func TestI11_AlikeValuesAreReadOnce(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("A", 16<<10))
	steps := func(values int) int {
		var needles [][]byte
		for i := range values {
			needles = append(needles, fmt.Appendf(nil, "%s%04d", strings.Repeat("A", 8188), i))
		}
		var c scan
		if Compile(needles, Options{}).run(&c, text); len(c.hits) > 0 {
			t.Fatalf("%d hits", len(c.hits))
		}
		return c.sums.steps
	}
	one, many := steps(1), steps(32)
	if one == 0 || many > one+one/10 || one > 3*sumBlock*len(text) {
		t.Errorf("%d bytes are added up for one value, %d for 32", one, many)
	}
}

// TestSumsAreOfTheParts: every part of a text has the sum of the same bytes elsewhere, and no other.
func TestSumsAreOfTheParts(t *testing.T) {
	t.Parallel()
	r, base := newRandom(3), newBase()
	text := make([]byte, 300)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	var s sums
	s.reset(base, text)
	for range 3000 {
		from := r.IntN(len(text))
		to := from + 1 + r.IntN(len(text)-from)
		part := append([]byte{}, text[from:to]...)
		sum, power := total(base, part)
		if got := s.of(from, to, power); got != sum {
			t.Fatalf("%d to %d: %d, want %d", from, to, got, sum)
		}
		part[r.IntN(len(part))]++
		if other, _ := total(base, part); other == sum {
			t.Fatalf("%d to %d: another text has its sum", from, to)
		}
	}
}
