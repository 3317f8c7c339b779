package mask

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"slices"
)

// grid says at which places of a text samples are taken, and how long they are.
// A pattern that stands anywhere has one sample that lies at such a place: it has
// step of them, one behind the other, that end where it ends.
type grid struct{ size, step int }

// span is how much of a pattern its samples take up.
func (g grid) span() int { return g.size + g.step - 1 }

// grids has the fastest first.
var grids = [...]grid{{32, 16}, {16, 16}, {16, 8}, {12, 8}, {8, 4}, {minPattern, 1}}

// fits reports whether samples of the grid may be taken of the pattern. Each holds
// eight characters of the value: hexadecimal digits of those are 16 bytes, decimal
// numbers some 32. Of a short pattern it holds fewer, and so it does where a
// character takes more than two bytes in base64.
func (p *pattern) fits(g grid) bool {
	least := (8*p.size + len(p.source) - 1) / len(p.source)
	switch {
	case p.form == formDecimal && p.holds(grids[0]):
		least = 32
	case p.holds(grid{16, 8}):
		least = min(least, 16)
	case p.holds(grid{8, 4}):
		least = min(least, 8)
	default:
		least = minPattern
	}
	return g.size >= least && p.holds(g) && (g.size < 32 || p.form == formDecimal)
}

// holds reports whether the grid's samples leave out two fifths of the pattern:
// what people know of a value is mostly its beginning, such as sk-.
func (p *pattern) holds(g grid) bool { return 3*p.size >= 5*g.span() || g.step == 1 }

// newLanes takes samples of every pattern, in as few lanes as it can: each lane
// goes through the whole text.
func newLanes(patterns []pattern) (lanes []lane) {
	left := make([]int32, len(patterns))
	for i := range left {
		left[i] = int32(i)
	}
	for n, g := range slices.Backward(grids[:]) {
		slower := func(i int32) bool { return !slices.ContainsFunc(grids[:n], patterns[i].fits) }
		if !slices.ContainsFunc(left, slower) {
			continue
		}
		var of, rest []int32
		for _, i := range left {
			if patterns[i].fits(g) {
				of = append(of, i)
			} else {
				rest = append(rest, i)
			}
		}
		lanes, left = append(lanes, newLane(g, patterns, of)), rest
	}
	return lanes
}

// lane finds the patterns of one grid.
type lane struct {
	grid
	// seed is random, so that which texts have the hash of a sample by chance
	// tells nothing of the sample.
	seed    [4]uint64
	filter  []uint64 // bits of the hashes that samples have
	samples []sample // sorted by hash
}

// sample is one of a pattern.
type sample struct {
	hash    uint32
	pattern int32
	at      int32 // its place in the pattern
}

// newLane takes the samples of patterns.
func newLane(g grid, patterns []pattern, of []int32) lane {
	l := lane{grid: g, samples: make([]sample, 0, g.step*len(of))}
	for i := range l.seed {
		l.seed[i] = maphash.Bytes(maphash.MakeSeed(), nil)
	}
	// Of 64 bits for each sample most stay unset. A text that repeats itself can
	// meet those of a small filter again and again.
	l.filter = make([]uint64, 1<<min(26, max(11, bits.Len(uint(cap(l.samples))))))
	for _, n := range of {
		p := &patterns[n]
		text := p.head
		if p.size > len(text) {
			text = p.spell.text(p.source)
		}
		for at := p.size - l.span(); at+l.size <= p.size; at++ {
			h := l.hash(text[at:])
			l.filter[h&uint32(len(l.filter)-1)] |= 1 << (h >> 26)
			l.samples = append(l.samples, sample{h, n, int32(at)})
		}
	}
	// Behind the hash, those of one place and length: they need one sum.
	slices.SortFunc(l.samples, func(a, b sample) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.at, b.at), cmp.Compare(patterns[a.pattern].size, patterns[b.pattern].size))
	})
	return l
}

// hash mixes the sample at the start of b with random numbers by multiplying, as
// wyhash does: a sample is short, and a call of hash/maphash takes longer.
func (l *lane) hash(b []byte) uint32 {
	switch l.size {
	case 32:
		return hash16(b, l.seed[0], l.seed[1]) ^ hash16(b[16:], l.seed[2], l.seed[3])
	case 16:
		return hash16(b, l.seed[0], l.seed[1])
	case 12:
		return hash12(b, l.seed[0], l.seed[1])
	case 8:
		return hash8(b, l.seed[0], l.seed[1])
	}
	return hash6(b, l.seed[0], l.seed[1])
}

func hash16(t []byte, a, b uint64) uint32 { return mix(word(t)^a, word(t[8:])^b) }

func hash12(t []byte, a, b uint64) uint32 {
	return mix(word(t)^a, uint64(binary.LittleEndian.Uint32(t[8:]))^b)
}

func hash8(t []byte, a, b uint64) uint32 { return mix(word(t)^a, b) }

func hash6(t []byte, a, b uint64) uint32 {
	return mix(uint64(binary.LittleEndian.Uint32(t))<<16^uint64(binary.LittleEndian.Uint16(t[4:]))^a, b)
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func mix(a, b uint64) uint32 {
	high, low := bits.Mul64(a, b)
	return uint32(high ^ low)
}

// search appends every place where a whole pattern stands.
func (l *lane) search(patterns []pattern, s *sums, out []found) []found {
	text := s.text
	for i := 0; i+l.size <= len(text); i += l.step {
		var h uint32
		if i, h = l.next(text, i); i < len(text) {
			out = l.at(i, h, patterns, s, out)
		}
	}
	return out
}

// numeric has the bytes of arrays of numbers: the largest samples are of those.
var numeric = func() (is [256]bool) {
	for _, c := range "0123456789 +," {
		is[c] = true
	}
	return is
}()

// next returns the first place from i on that may have a sample, and the hash of
// what stands there. Each grid has its own loop, for speed.
func (l *lane) next(text []byte, i int) (int, uint32) {
	a, b, filter := l.seed[0], l.seed[1], l.filter
	t := text[i:]
	switch l.grid {
	case grid{32, 16}:
		for ; len(t) >= 32; t = t[16:] {
			if !numeric[t[0]] || !numeric[t[31]] {
				continue
			}
			if h := l.hash(t); has(filter, h) {
				return len(text) - len(t), h
			}
		}
	case grid{16, 16}:
		for ; len(t) >= 16; t = t[16:] {
			if h := hash16(t, a, b); has(filter, h) {
				return len(text) - len(t), h
			}
		}
	case grid{16, 8}:
		for ; len(t) >= 16; t = t[8:] {
			if h := hash16(t, a, b); has(filter, h) {
				return len(text) - len(t), h
			}
		}
	case grid{12, 8}:
		for ; len(t) >= 12; t = t[8:] {
			if h := hash12(t, a, b); has(filter, h) {
				return len(text) - len(t), h
			}
		}
	case grid{8, 4}:
		for ; len(t) >= 8; t = t[4:] {
			if h := hash8(t, a, b); has(filter, h) {
				return len(text) - len(t), h
			}
		}
	default:
		for ; len(t) >= minPattern; t = t[1:] {
			if h := hash6(t, a, b); has(filter, h) {
				return len(text) - len(t), h
			}
		}
	}
	return len(text), 0
}

// has reports whether the filter, whose length is a power of two, has a hash.
func has(filter []uint64, h uint32) bool {
	return filter[h&uint32(len(filter)-1)]>>(h>>26)&1 != 0
}

// at appends the patterns whose sample of that hash stands at i.
func (l *lane) at(i int, h uint32, patterns []pattern, text *sums, out []found) []found {
	// The hashes are spread evenly, so that the place is near.
	n := int(uint64(h) * uint64(len(l.samples)) >> 32)
	for n > 0 && l.samples[n-1].hash >= h {
		n--
	}
	for ; n < len(l.samples) && l.samples[n].hash <= h; n++ {
		s := &l.samples[n]
		if begin := i - int(s.at); s.hash == h && begin >= 0 && patterns[s.pattern].at(text, begin) {
			out = append(out, found{begin, &patterns[s.pattern]})
		}
	}
	return out
}
