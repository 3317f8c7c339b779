package mask

import (
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
	for _, value := range []string{"sk-ant-R3alT0k3nV4lueQ7xZ2mK9pLw8Yb5Tc1Hd", "ghp_R3alT0k3nV4lue/+x9", "glpat-R3alT0k3nV4lue/"} {
		set := Compile([][]byte{[]byte(value)}, Options{})
		public := 2 * len(value) / 5
		for shift := range 16 {
			before := strings.Repeat("~", shift)
			for known := range public + 6 {
				for name, text := range spelled(value[:known] + strings.Repeat("~", len(value)-known)) {
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
		for shift := range 2 * headSize {
			for name, text := range map[string]string{"plain": value, "hexadecimal": strings.ToUpper(string(spellers[0].text([]byte(value)))), "numbers": string(decimals([]byte(value), ", "))} {
				if out, _, err := set.Replace(strings.Repeat("~", shift)+text+"~", ReplaceBy([][]byte{nil})); err != nil || strings.Trim(out, "~") != "" {
					t.Fatalf("%s of %d characters behind %d others: %q, %v", name, n, shift, out, err)
				}
			}
		}
	}
}
