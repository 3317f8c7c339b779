package mask

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestI17_OnlyTokenRunsAreHeld: what a live answer holds back after each piece is its last run of token
// characters, whatever the needles are.
func TestI17_OnlyTokenRunsAreHeld(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("QUJD", 16)
	for _, tt := range []struct {
		data    string
		framing Framing
		held    int
	}{
		{"", frameNone, 0},
		{"data: {\"x\":\"" + line + "\"}\n\n", frameNone, 0}, // an event of an API
		{"data: " + line + "\n\n", frameNone, 0},
		{"data: " + line + "\r\n\r\n", frameNone, 0},
		{"data: " + line + "\n", frameNone, len(line) + 1},
		{"data: " + line + "\n", frameLines, 0},
		{"hello wor", frameNone, 0},
		{"see abcdefg", frameNone, 0},
		{"see abcdefgh", frameNone, 8},
		{"see abcdefgh ", frameNone, 0},
		{"x " + line + "\r\n  " + line + "\n", frameNone, 2*len(line) + 5}, // folded base64
		{"x " + line + "\n" + strings.Repeat(" ", 3000), frameNone, len(line) + 3001},
		{"{\"token\":\"abc\\u00", frameNone, 16},
		{"see \\u{61}\\x{0062}", frameNone, 14},
		{"see {\\u{61}\\x{0062}}", frameNone, 0},
		{"see abcdefgh\\u{6z}", frameNone, 0},
		{"a\x00b\x00c\x00d\x00e\x00f\x00g\x00h\x00", frameNone, 16},
		{"\x00\x00\x00\x00\x41" + line, framePrefixed, len(line)},
		{"\x00\x00\x00\x00\x40" + line, framePrefixed, 0},
		{"\x00\x00\x00\x00\x40" + line + "\x00\x00\x00", framePrefixed, 0},
		{"\x00\x00\x00\x00\x40" + line + "\x00\x00\x00\x01\x00" + line, framePrefixed, len(line)},
		{"\x00\x00\x00\x00\x40" + line, frameNone, len(line) + 1},
		{strings.Repeat("a", 40*minWindow), frameNone, -1}, // a window
	} {
		for _, value := range []string{"a-value-of-some-kind", `{"a": "b c", "d"}`, line[:40]} {
			set := Compile([][]byte{[]byte(value)}, Options{})
			st := NewAnswerStream(set, ReplaceBy([][]byte{nil}), true).Framed(tt.framing)
			want := tt.held
			if want < 0 {
				want = set.window
			}
			out, err := st.Push(nil, []byte(tt.data), false)
			if value != line[:40] && err == nil && len(tt.data)-len(out) != want {
				t.Errorf("%.40q: %d bytes are held back, want %d", tt.data, len(tt.data)-len(out), want)
			}
			rest, err := st.endMessage(nil)
			if all := string(out) + string(rest); err != nil || value != line[:40] && all != tt.data {
				t.Errorf("%.40q: at the message's end %.40q had come out (%v)", tt.data, all, err)
			}
		}
	}
	short := NewAnswerStream(Compile([][]byte{[]byte("15-characters-x")}, Options{}), ReplaceBy([][]byte{nil}), true)
	if out, _ := short.Push(nil, []byte("see 1"), false); string(out) != "see " {
		t.Errorf("with a short value %q passes, want all but the token's beginning", out)
	}
	enough := NewAnswerStream(Compile([][]byte{[]byte("16-characters-xy")}, Options{}), ReplaceBy([][]byte{nil}), true)
	if out, _ := enough.Push(nil, []byte("see 1"), false); string(out) != "see 1" {
		t.Errorf("with a value of 16 characters %q passes, want all of a run of fewer than 8", out)
	}
	// A line that is too short to hold a value ends at its break, and isn't added to the next.
	if out, _ := enough.Push(nil, []byte("23456\n1234567"), false); string(out) != "23456\n1234567" {
		t.Errorf("of two short lines %q passes, want both", out)
	}
}

// TestI17_PiecesDontChangeRuns: what feed skips for speed changes nothing.
func TestI17_PiecesDontChangeRuns(t *testing.T) {
	t.Parallel()
	r := newRandom(5)
	const alphabet = "aaaaaauuu{{{}}}\x00\x00 \t\n\r{]\x01\\\\\\"
	for range 20000 {
		data := make([]byte, r.IntN(60))
		for i := range data {
			data[i] = alphabet[r.IntN(len(alphabet))]
		}
		kind := Framing(r.IntN(3))
		whole, single := tokenRun{frame: frame{kind: kind}}, tokenRun{frame: frame{kind: kind}}
		whole.feed(data, 0)
		for i := range data {
			single.feed(data[:i+1], i)
		}
		if whole.count == 0 && single.count == 0 {
			continue
		}
		if whole.start != single.start || whole.count != single.count || whole.fold != single.fold || whole.brace != single.brace {
			t.Fatalf("%q framing %d: whole %+v, byte by byte %+v", data, kind, whole, single)
		}
	}
}

// TestI17_BrokenAnswerGivesNothingHeld: a value might have followed.
func TestI17_BrokenAnswerGivesNothingHeld(t *testing.T) {
	t.Parallel()
	const value = "ghp_R4nd0mV4lueOfTheSandbox"
	set := Compile([][]byte{[]byte(value)}, Options{})
	source, sink := io.Pipe()
	r := NewReader(source, NewAnswerStream(set, ReplaceBy([][]byte{[]byte("PLACEHOLDER")}), true))
	broken := errors.New("reset")
	go func() {
		_, _ = io.WriteString(sink, "see "+value[:20])
		_ = sink.CloseWithError(broken)
	}()
	if all, err := io.ReadAll(r); !errors.Is(err, broken) || string(all) != "see " {
		t.Errorf("got %q and %v of an answer that broke off", all, err)
	}
}

// TestI10_LongRunsAtEndsAreMasked: the value ends in more zeros than are kept
// of a run.
func TestI10_LongRunsAtEndsAreMasked(t *testing.T) {
	t.Parallel()
	value := testValue + strings.Repeat("0", 2*maxFill)
	set, replace := Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{[]byte(testPlaceholder)})
	for size := 1; size < len(value); size++ {
		for _, live := range []bool{false, true} {
			text := "see " + value + " there"
			out := inPieces(t, NewAnswerStream(set, replace, live), text, func() int { return size })
			before, found := strings.CutSuffix(out, testPlaceholder+" there") // a live one may have given a few characters
			if !found || len(before) >= len("see ")+minRun {
				t.Errorf("live %v, in pieces of %d: %q", live, size, out)
			}
		}
	}
}

// TestIndentHoldsLastRunOnly: of an indent the most is not kept.
func TestIndentHoldsLastRunOnly(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	st := NewAnswerStream(set, replace, true)
	pieces := []string{"see ", "abcdefghijkl\n" + strings.Repeat(" ", 2*maxFill), "  } and so on, ", "abcdefghijkl"}
	out, err := st.Push(nil, []byte(pieces[0]+pieces[1]), false)
	if err != nil || string(out) != pieces[0] {
		t.Errorf("of the first piece: %q, %v", out, err)
	}
	if out, err = st.Push(nil, []byte(pieces[2]+pieces[3]), false); err != nil || string(out) != pieces[1]+pieces[2] {
		t.Errorf("of the second: %q, %v", out, err)
	}
}

// TestPlaceholdersBehindABeginningAreComplete: the few characters of a value that passed before are no part of it.
func TestPlaceholdersBehindABeginningAreComplete(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	st := NewAnswerStream(set, replace, true)
	out, err := st.Push(nil, []byte(testValue[:minRun-1]), false)
	if err != nil || string(out) != testValue[:minRun-1] {
		t.Errorf("a beginning: %q, %v", out, err)
	}
	if out, err = st.Push(nil, []byte(testValue[minRun-1:]+" "), false); err != nil || string(out) != testPlaceholder+" " {
		t.Errorf("the rest: %q, %v", out, err)
	}
}

// TestI8_AnswerMemoryIsOverwritten: the next one gets it. It doesn't run beside tests that would take it.
func TestI8_AnswerMemoryIsOverwritten(t *testing.T) {
	set, replace := compile()
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
		stream := NewAnswerStream(set, replace, false)
		used := stream.workspace
		text := strings.Repeat("see %41 "+testValue+" there ", 1+8*set.window/len(testValue)) // looked at before its end too
		answer := io.MultiReader(strings.NewReader(text), iotest.ErrReader(end))
		if _, err := io.ReadAll(NewReader(answer, stream)); err != nil && !errors.Is(err, end) {
			t.Fatal(err)
		}
		texts := [][]byte{used.buf}
		for _, v := range used.scan.views {
			texts = append(texts, v.text)
		}
		if stream.workspace != nil || len(texts) < 2 {
			t.Errorf("behind %v: the memory is kept, or there were %d texts", end, len(texts))
		}
		for _, text := range texts {
			if text = text[:cap(text)]; len(bytes.Trim(text, "\x00")) > 0 {
				t.Errorf("behind %v: %q is left", end, text)
			}
		}
	}
}

// TestI17_OldAnswersMaskNewValues: an answer that began before a value was known.
func TestI17_OldAnswersMaskNewValues(t *testing.T) {
	t.Parallel()
	const value = "a-token-that-was-minted-later"
	known := [][]byte{[]byte("the-first-value-of-all")}
	st := NewAnswerStream(Compile(known, Options{}), ReplaceBy([][]byte{[]byte("P")}), true)
	st.Follow(func() (*Set, Replacer) {
		return Compile(known, Options{}), ReplaceBy([][]byte{[]byte("P"), []byte("Q")})
	})
	out, _ := st.Push(nil, []byte("hello "), false)
	known = append(known, []byte(value))
	out, _ = st.Push(out, []byte(value+" "), false)
	if string(out) != "hello Q " {
		t.Errorf("got %q", out)
	}
}
