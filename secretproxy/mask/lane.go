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

// grids has the largest first. Of eight characters of a value, hexadecimal digits
// are 16 bytes and decimal numbers some 32.
var grids = [...]grid{{32, 16}, {16, 8}, {8, 4}, {minPattern, 1}}

// grid returns the index of the pattern's grid. Of what people know of values,
// such as sk-, most are beginnings: samples stay out of two fifths of it.
func (p *pattern) grid() int {
	for i, g := range grids {
		if 3*p.size >= 5*g.span() && (i > 0 || p.form == formDecimal) {
			return i
		}
	}
	return len(grids) - 1
}

// lane finds the patterns of one grid.
type lane struct {
	grid
	// seed is random, so that which texts have the hash of a sample by chance
	// tells nothing of the sample.
	seed    [4]uint64
	filter  []uint64 // bits of the hashes that samples have
	shift   uint     // of a hash, to an index of bits
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
	// Of 32 bits for each sample most stay unset.
	width := min(32, max(6, bits.Len(uint(32*cap(l.samples)))))
	l.filter, l.shift = make([]uint64, 1<<(width-6)), uint(32-width)
	for _, n := range of {
		p := &patterns[n]
		text := p.head
		if p.size > len(text) {
			text = p.spell.text(p.source)
		}
		for at := p.size - l.span(); at+l.size <= p.size; at++ {
			h := l.hash(text[at:])
			l.filter[h>>l.shift>>6] |= 1 << (h >> l.shift & 63)
			l.samples = append(l.samples, sample{h, n, int32(at)})
		}
	}
	slices.SortFunc(l.samples, func(a, b sample) int { return cmp.Compare(a.hash, b.hash) })
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
	case 8:
		return hash8(b, l.seed[0], l.seed[1])
	}
	return hash6(b, l.seed[0], l.seed[1])
}

func hash16(t []byte, a, b uint64) uint32 { return mix(word(t)^a, word(t[8:])^b) }

func hash8(t []byte, a, b uint64) uint32 { return mix(word(t)^a, b) }

func hash6(t []byte, a, b uint64) uint32 {
	return mix(uint64(binary.LittleEndian.Uint32(t))<<16^uint64(binary.LittleEndian.Uint16(t[4:]))^a, b)
}

func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func mix(a, b uint64) uint32 {
	high, low := bits.Mul64(a, b)
	return uint32((high ^ low) >> 32)
}

// search appends every place where a whole pattern stands.
func (l *lane) search(patterns []pattern, text []byte, out []found) []found {
	for i := 0; i+l.size <= len(text); i += l.step {
		var h uint32
		if i, h = l.next(text, i); i < len(text) {
			out = l.at(i, h, patterns, text, out)
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
// what stands there. Each size has its own loop, for speed.
func (l *lane) next(text []byte, i int) (int, uint32) {
	a, b, filter, shift := l.seed[0], l.seed[1], l.filter, l.shift&31
	t := text[i:]
	switch l.size {
	case 32:
		for c, d := l.seed[2], l.seed[3]; len(t) >= 32; t = t[16:] {
			if !numeric[t[0]] || !numeric[t[31]] {
				continue
			}
			h := hash16(t, a, b) ^ hash16(t[16:], c, d)
			if bit := h >> shift; filter[bit>>6]>>(bit&63)&1 != 0 {
				return len(text) - len(t), h
			}
		}
	case 16:
		for ; len(t) >= 24; t = t[16:] { // two at once
			first, second := hash16(t, a, b), hash16(t[8:], a, b)
			if one, two := first>>shift, second>>shift; (filter[one>>6]>>(one&63)|filter[two>>6]>>(two&63))&1 == 0 {
				continue
			}
			if bit := first >> shift; filter[bit>>6]>>(bit&63)&1 != 0 {
				return len(text) - len(t), first
			}
			return len(text) - len(t) + 8, second
		}
		if len(t) >= 16 {
			h := hash16(t, a, b)
			if bit := h >> shift; filter[bit>>6]>>(bit&63)&1 != 0 {
				return len(text) - len(t), h
			}
		}
	case 8:
		for ; len(t) >= 8; t = t[4:] {
			h := hash8(t, a, b)
			if bit := h >> shift; filter[bit>>6]>>(bit&63)&1 != 0 {
				return len(text) - len(t), h
			}
		}
	default:
		for ; len(t) >= minPattern; t = t[1:] {
			h := hash6(t, a, b)
			if bit := h >> shift; filter[bit>>6]>>(bit&63)&1 != 0 {
				return len(text) - len(t), h
			}
		}
	}
	return len(text), 0
}

// at appends the patterns whose sample of that hash stands at i.
func (l *lane) at(i int, h uint32, patterns []pattern, text []byte, out []found) []found {
	// The hashes are spread evenly, so that the place is near.
	n := int(uint64(h) * uint64(len(l.samples)) >> 32)
	for n > 0 && l.samples[n-1].hash >= h {
		n--
	}
	for ; n < len(l.samples) && l.samples[n].hash <= h; n++ {
		s := &l.samples[n]
		if begin := i - int(s.at); s.hash == h && begin >= 0 && patterns[s.pattern].begins(text[begin:]) {
			out = append(out, found{begin, &patterns[s.pattern]})
		}
	}
	return out
}
