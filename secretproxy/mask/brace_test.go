package mask

import (
	"strings"
	"testing"
)

// TestI10_BracesInPiecesShowLittle: a value of which each character is written as \u{X}, on a live answer that is cut
// anywhere.
func TestI10_BracesInPiecesShowLittle(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	for _, format := range []string{`\u{%x}`, `\x{%04x}`} {
		text := eachRune(testValue, format)
		for size := 1; size < len(text); size++ {
			out := inPieces(t, NewAnswerStream(set, replace, true), "see "+text+" there", func() int { return size })
			if shown := strings.Count(out, "{"); shown > 1 || !strings.HasSuffix(out, testPlaceholder+" there") {
				t.Errorf("%s, in pieces of %d: %q", format, size, out)
			}
		}
	}
}
