package mask

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// TestI10_LongestNeedleWins: one value is the beginning of another, and text in front of them looks
// like an escape. Whichever was added first, and however many lie between them, no end of the longer one stays.
func TestI10_LongestNeedleWins(t *testing.T) {
	t.Parallel()
	const short, end = "abcdef-token-5150", "-and-the-rest-of-it"
	long := short + strings.Repeat(end, 20) // no spelling of the short one is as long
	var others [][]byte
	for i := range 100 {
		others = append(others, fmt.Appendf(nil, "another-value-%04d", i))
	}
	none := Compile(nil, Options{})
	for name, set := range map[string]*Set{
		"short first":          none.Add([][]byte{[]byte(short), []byte(long)}),
		"long first":           none.Add([][]byte{[]byte(long), []byte(short)}),
		"short far from long":  none.Add([][]byte{[]byte(short)}).Add(others).Add([][]byte{[]byte(long)}),
		"long far from short":  none.Add([][]byte{[]byte(long)}).Add(others).Add([][]byte{[]byte(short)}),
		"long in an older set": none.Add(append(others, []byte(long))).Add([][]byte{[]byte(short)}),
	} {
		for text, want := range map[string]string{"see %" + long + " there": "see %* there", "see %" + short + " there": "see %* there"} {
			out, _, err := set.Replace(text, func(Hit) ([]byte, error) { return []byte("*"), nil })
			if err != nil || out != want {
				t.Errorf("%s: %q became %q, %v", name, text, out, err)
			}
		}
	}
}

// TestI10_NeedlesOfOneBeginningAreMasked: tokens of one issuer begin alike, for longer than what is kept of each.
func TestI10_NeedlesOfOneBeginningAreMasked(t *testing.T) {
	t.Parallel()
	begin := strings.Repeat("eyJhbGci", 2*headSize/8)
	needles := [][]byte{[]byte(begin + "first-end"), []byte(begin + "other-end"), []byte(begin + "third-and-longer-end"), []byte(begin[:headSize])}
	set, replace := Compile(needles, Options{}), ReplaceBy([][]byte{[]byte("<0>"), []byte("<1>"), []byte("<2>"), []byte("<3>")})
	for i, needle := range needles {
		for name, spell := range map[string]func(string) string{"plain": strings.Clone, "hex": func(s string) string { return hex.EncodeToString([]byte(s)) }} {
			if got, _, err := set.Replace("see "+spell(string(needle)), replace); err != nil || got != "see "+spell(fmt.Sprintf("<%d>", i)) {
				t.Errorf("needle %d, %s: %q, %v", i, name, got, err)
			}
		}
	}
}

// TestI10_EscapedLeadingBlanksAreMasked: what a server makes of it is an indent behind a line break.
func TestI10_EscapedLeadingBlanksAreMasked(t *testing.T) {
	t.Parallel()
	set := Compile([][]byte{[]byte("%20token-0123456789abc")}, Options{})
	for _, text := range []string{`"see\n token-01234\u003567\u0038\u0039abc"`, "see\r\n\ttoken-01234%3567%38%39abc"} {
		if _, hit := set.Find(text); !hit {
			t.Errorf("%s passes", text)
		}
	}
}

// TestI10_EscapesBehindValuesHideNothing: what follows a value makes an escape of its last character.
func TestI10_EscapesBehindValuesHideNothing(t *testing.T) {
	t.Parallel()
	needles := [][]byte{[]byte("key-and-rest-of-it%"), []byte("another-plain-value")}
	for name, set := range map[string]*Set{
		"at once": Compile(needles, Options{}), "one by one": Compile(needles[:1], Options{}).Add(needles[1:]),
	} {
		if out, hits, err := set.ReplaceBytes([]byte("see key-and-rest-of-it%41 "), func(Hit) ([]byte, error) { return []byte("*"), nil }); err != nil || hits != 1 || string(out) != "see *41 " {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// TestI17_AMessageBeginsWithoutARun: the token that ended the message before is no part of one in the next.
func TestI17_AMessageBeginsWithoutARun(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	st := NewAnswerStream(set, replace, true)
	for range 3 {
		out, err := st.Push(nil, []byte("see "+strings.Repeat("x", 2*minRun)), false)
		if err != nil || string(out) != "see " {
			t.Errorf("a token that goes on: %q, %v", out, err)
		}
		if out, err = st.endMessage(nil); err != nil || len(out) != 2*minRun {
			t.Errorf("its end: %q, %v", out, err)
		}
		if out, err = st.Push(nil, []byte("abc"), false); err != nil || string(out) != "abc" {
			t.Errorf("the beginning of the next message: %q, %v", out, err)
		}
		if out, err = st.endMessage(nil); err != nil || len(out) > 0 {
			t.Errorf("its end: %q, %v", out, err)
		}
	}
}

// endMessage ends a message: the bytes held back of it are appended to dst, and
// what follows stands by itself.
func (st *Stream) endMessage(dst []byte) ([]byte, error) {
	dst, err := st.advance(dst, 0, true)
	st.each(func(st *Stream) {
		st.buf, st.done, st.fills = st.buf[:0], 0, nil
		st.run = tokenRun{frame: st.run.frame}
	})
	return dst, err
}
