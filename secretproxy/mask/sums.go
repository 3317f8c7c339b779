package mask

import (
	"hash/maphash"
	"math/bits"
)

// prime is 2^61-1, modulo which sums are polynomials of a text's bytes. Another
// text has the sum of a pattern with a chance of some 2^-45: the base is random.
const prime = 1<<61 - 1

// sumBlock is the bytes between two sums that are kept.
const sumBlock = 32

// sums are of the beginnings of a text, so that each part of it is compared with a
// pattern in the same time, however long both are (attack: a guest has values of
// 8 KiB minted that differ at their end, and a page repeated that begins like all
// of them at each place).
type sums struct {
	base  uint64
	text  []byte
	kept  []uint64 // of text[:i*sumBlock]
	steps int      // bytes that were added up
	// last is what of returned for text[from:to].
	from, to int
	last     uint64
}

// newBase returns a random base of sums.
func newBase() uint64 { return maphash.Bytes(maphash.MakeSeed(), nil)%(prime-256) + 256 }

// reset begins another text.
func (s *sums) reset(base uint64, text []byte) {
	s.base, s.text, s.kept, s.steps = base, text, append(s.kept[:0], 0), 0
	s.to = 0
}

// of returns the sum of text[from:to], of which base to the power of its length is
// known.
func (s *sums) of(from, to int, power uint64) uint64 {
	if from != s.from || to != s.to {
		s.from, s.to, s.last = from, to, addMod(s.until(to), prime-mulMod(s.until(from), power))
	}
	return s.last
}

func (s *sums) until(at int) uint64 {
	for n := len(s.kept); n <= at/sumBlock; n++ {
		s.kept = append(s.kept, s.add(s.kept[n-1], s.text[(n-1)*sumBlock:n*sumBlock]))
	}
	return s.add(s.kept[at/sumBlock], s.text[at/sumBlock*sumBlock:at])
}

func (s *sums) add(sum uint64, text []byte) uint64 {
	s.steps += len(text)
	for _, c := range text {
		sum = addMod(mulMod(sum, s.base), uint64(c))
	}
	return sum
}

func addMod(a, b uint64) uint64 {
	if a += b; a >= prime {
		a -= prime
	}
	return a
}

func mulMod(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return addMod(low&prime, high<<3|low>>61)
}

// total returns the sum of a text, and base to the power of its length.
func total(base uint64, text []byte) (sum, power uint64) {
	power = 1
	for _, c := range text {
		sum, power = addMod(mulMod(sum, base), uint64(c)), mulMod(power, base)
	}
	return sum, power
}
