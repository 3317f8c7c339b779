package mask

import (
	"bytes"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// met counts the places of text where the work of a search depends on the needles: where a sample of one stands.
func met(s *Set, text string) (n int) {
	for _, m := range s.plain.matchers {
		for _, l := range m.lanes {
			for i := 0; i+l.size <= len(text); i += l.step {
				var h uint32
				if i, h = l.next([]byte(text), i); i < len(text) && slices.ContainsFunc(l.samples, func(s sample) bool { return s.hash == h }) {
					n++
				}
			}
		}
	}
	return n
}

// TestI17_GuessesTakeNoOtherTime: a search does the same with a guess that is right in five characters behind a known
// beginning as with any other text, in every spelling and at every place. Its twin is the whole value, where it stops.
func TestI17_GuessesTakeNoOtherTime(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"sk-ant-R3alT0k3nV4lueQ7xZ2mK9pLw8Yb5Tc1Hd", "npm_R3alT0k3nV4lueQ7xZ2mK9pLw8Yb5T", "ghp_R3alT0k3nV4lue/+x9", "glpat-R3alT0k3nV4lue/", "k-R3alT0k3nV"} {
		set := Compile([][]byte{[]byte(value)}, Options{})
		public := 2 * len(value) / 5
		for shift := range 16 {
			before := strings.Repeat("~", shift)
			for known := range public + 6 {
				guess := value[:known] + strings.Repeat("~", len(value)-known)
				texts := map[string]string{"plain": guess}
				if len(value) > 20 {
					texts = spelled(guess)
				}
				for name, text := range texts {
					n := met(set, before+text)
					if n > 0 { // another text has a sample's hash by chance, once in some hundred million
						n = met(Compile([][]byte{[]byte(value)}, Options{}), before+text)
					}
					if n > 0 {
						t.Errorf("%s: %d places of a guess with %d right characters are looked at again", name, n, known)
					}
				}
			}
			if met(set, before+value) == 0 {
				t.Error("the value itself is not noticed either: this test shows nothing")
			}
		}
	}
}

// TestI17_SamplesHoldEightCharacters: of a value, unless its spelling is short or wide, and none of its beginning. A text
// is gone through as rarely as that allows, and few other texts have the hash of a sample.
func TestI17_SamplesHoldEightCharacters(t *testing.T) {
	t.Parallel()
	random, r := make([]byte, 8<<10), rand.New(rand.NewPCG(7, 7))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for n, want := range map[int]string{
		9: "[{6 1} {8 4}]", 18: "[{6 1} {8 4} {16 8}]", 19: "[{8 4} {16 8} {32 16}]", 31: "[{8 4} {16 8} {32 16}]", 32: "[{12 8} {16 8} {32 16}]",
		33: "[{12 8} {16 16} {32 16}]", 38: "[{12 8} {16 16} {32 16}]", 39: "[{16 8} {32 16}]", 51: "[{16 8} {32 16}]", 52: "[{16 16} {32 16}]",
	} {
		m := Compile([][]byte{[]byte(strings.Repeat("aB3dE5gH7jK9mN1pQ2sT4vW6yZ8b", 2)[:n])}, Options{}).plain.matchers[0]
		var grids []grid
		for _, l := range m.lanes {
			grids = append(grids, l.grid)
			set := 0
			for _, word := range l.filter {
				set += bits.OnesCount64(word)
			}
			if set == 0 || set*128 > 64*len(l.filter) {
				t.Errorf("%d characters, %v: %d of %d bits are set", n, l.grid, set, 64*len(l.filter))
			}
			for i := range l.size {
				other := bytes.Clone(random)
				other[i]++
				if l.hash(other) == l.hash(random) {
					t.Errorf("%d characters, %v: byte %d of a sample is overlooked", n, l.grid, i)
				}
			}
			stops := 0
			for i := 0; i < len(random); i += l.step {
				if i, _ = l.next(random, i); i < len(random) {
					stops++
				}
			}
			if stops > len(random)/l.step/16 {
				t.Errorf("%d characters, %v: %d places of other text are looked at", n, l.grid, stops)
			}
			for _, s := range l.samples {
				p := &m.patterns[s.pattern]
				wide := p.size > 2*len(p.source)
				if p.size >= 39 && !wide && l.size*len(p.source) < 8*p.size || p.size >= 79 && p.form == formDecimal && l.size < 32 ||
					wide && p.size >= 39 && l.size < 16 || p.size >= 19 && l.size < 8 {
					t.Errorf("%d characters: samples of %d bytes of %q", n, l.size, p.head)
				}
				if l.step > 1 && 5*int(s.at) < 2*p.size {
					t.Errorf("%d characters: a sample at %d of %q", n, s.at, p.head)
				}
			}
		}
		if got := fmt.Sprint(grids); got != want {
			t.Errorf("%d characters: %s, want %s", n, got, want)
		}
	}
}

// TestI10_PatternsAreFoundAtAnyPlace: a pattern has a sample wherever it stands, at the end of a text too.
func TestI10_PatternsAreFoundAtAnyPlace(t *testing.T) {
	t.Parallel()
	const letters = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF_hJ-lMnoPqRstUvwXyz"
	for n := minPattern; n <= 2*headSize; n++ {
		value := strings.Repeat(letters, 3)[:n]
		set := Compile([][]byte{[]byte(value)}, Options{})
		for shift := range 20 {
			texts := map[string]string{"plain": value, "hexadecimal": strings.ToUpper(string(spellers[0].text([]byte(value))))}
			for _, separator := range separators {
				texts["numbers"+separator] = string(decimals([]byte(value), separator))
			}
			for name, text := range texts {
				if out, _, err := set.Replace(strings.Repeat("~", shift)+text, ReplaceBy([][]byte{nil})); err != nil || strings.Trim(out, "~") != "" {
					t.Fatalf("%s of %d characters behind %d others: %q, %v", name, n, shift, out, err)
				}
			}
		}
	}
}

// TestI10_LeadingEscapesHideNoSpelling: what stands before a value makes an escape of its first characters, in its
// longest spelling too, and in pieces.
func TestI10_LeadingEscapesHideNoSpelling(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 5))
	for _, text := range []string{"%" + string(decimals([]byte("ghijk-token-5150-yz"), ", ")), `\` + "nabcdefghijk-token"} {
		value := "ghijk-token-5150-yz"
		if text[0] == '\\' {
			value = text[1:]
		}
		set, replace := Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{nil})
		for range 50 {
			for name, st := range map[string]*Stream{"to servers": NewStream(set, replace, false), "body": NewAnswerStream(set, replace, false)} {
				if out := inPieces(t, st, "see "+text+".", func() int { return 1 + r.IntN(8) }); out != "see "+text[:1]+"." {
					t.Fatalf("%s: %q", name, out)
				}
			}
		}
	}
}

// TestLongValuesAreNeverCut: one that differs somewhere is another text.
func TestLongValuesAreNeverCut(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0eF", 6)
	set := Compile([][]byte{[]byte(value)}, Options{})
	for i := range value {
		other := value[:i] + "~" + value[i+1:]
		for _, text := range []string{other, string(spellers[0].text([]byte(other)))} {
			if out, hit, err := set.Replace(text, ReplaceBy([][]byte{nil})); err != nil || hit || out != text {
				t.Fatalf("with another character at %d: %q, %v", i, out, err)
			}
		}
	}
}
