package mask

import (
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
	for _, value := range []string{"sk-ant-R3alT0k3nV4lueQ7xZ2mK9pLw8Yb5Tc1Hd", "ghp_R3alT0k3nV4lue/+x9", "glpat-R3alT0k3nV4lue/", "k-R3alT0k3nV"} {
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
					if n := met(set, before+text); n > 0 {
						t.Errorf("%s: %d places of a guess with %d right characters are looked at again", name, n, known)
					}
				}
			}
			if met(set, before+value) == 0 {
				t.Error("nor is the value noticed")
			}
		}
	}
}

// TestI10_ValuesOfEveryLengthAtEveryPlace: a pattern has a sample wherever it stands.
func TestI10_ValuesOfEveryLengthAtEveryPlace(t *testing.T) {
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
				if out, _, err := set.Replace(strings.Repeat("~", shift)+text+"~", ReplaceBy([][]byte{nil})); err != nil || strings.Trim(out, "~") != "" {
					t.Fatalf("%s of %d characters behind %d others: %q, %v", name, n, shift, out, err)
				}
			}
		}
	}
}

// TestI10_AnEscapeInFrontSwallowsNoSpelling: what stands before a value makes an escape of its first characters, in its
// longest spelling too, and in pieces.
func TestI10_AnEscapeInFrontSwallowsNoSpelling(t *testing.T) {
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

// TestALongValueIsMaskedWholeOrNotAtAll: one that differs somewhere is another text.
func TestALongValueIsMaskedWholeOrNotAtAll(t *testing.T) {
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
