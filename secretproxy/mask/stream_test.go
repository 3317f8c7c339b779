package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"
	"weak"
)

const (
	testValue       = "ghp_R3alT0k3nV4lue/+x9"
	testPlaceholder = "ghp_PLACEHOLDERplaceholder0123456789"
)

func compile() (*Set, Replacer) {
	return Compile([][]byte{[]byte(testValue)}, Options{}), ReplaceBy([][]byte{[]byte(testPlaceholder)})
}

// spelled returns text around the value in every spelling that is promised.
func spelled(v string) map[string]string {
	jsonEscaped, percentAll, entities := "", "", ""
	for _, c := range []byte(v) {
		jsonEscaped += fmt.Sprintf(`\u%04x`, c)
		percentAll += fmt.Sprintf("%%%02X", c)
		entities += fmt.Sprintf("&#%d;", c)
	}
	out := map[string]string{
		"raw":          `{"token":"` + v + `"}`,
		"query":        "a=1&t=" + url.QueryEscape(v) + "&b=2",
		"percent":      percentAll,
		"lower escape": strings.ToLower(percentAll),
		"json slash":   `"` + strings.ReplaceAll(v, "/", `\/`) + `"`,
		"json u":       `"` + jsonEscaped + `"`,
		"entities":     "<b>" + entities + "</b>",
		"hex":          hex.EncodeToString([]byte(v)),
		"upper":        strings.ToUpper(v),
		"soft break":   "t=3D" + v[:9] + "=\r\n" + v[9:] + "=\r\n",
		"soft \\n":     "t=3D" + v[:9] + fmt.Sprintf("=%02X=\n", v[9]) + v[10:],
		"utf16":        strings.Join(strings.Split(v, ""), "\x00"),
	}
	for _, before := range []string{"", "u", "us", "user:", "user1:", "user12:"} {
		for _, after := range []string{"", "x", "xy", "xyz"} {
			name := fmt.Sprintf("base64 %q %q", before, after)
			text := []byte(before + v + after)
			out[name] = "Basic " + base64.StdEncoding.EncodeToString(text) + " end"
			out[name+" url"] = base64.RawURLEncoding.EncodeToString(text)
			wrapped := base64.StdEncoding.EncodeToString(text)
			out[name+" wrapped"] = wrapped[:9] + "\r\n" + wrapped[9:18] + "\r\n" + wrapped[18:]
		}
	}
	return out
}

func TestI10_ReplaceFindsEverySpelling(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	for name, text := range spelled(testValue) {
		got, hit, err := set.Replace(text, replace)
		if err != nil || !hit {
			t.Errorf("%s: hit %v, err %v in %q", name, hit, err, text)
		}
		if _, again := set.Find(got); again {
			t.Errorf("%s: the value is still in %q", name, got)
		}
	}
}

// TestI10_NonASCIIIsFoundByNumber: json.dumps of Python and json_encode of PHP write
// them so by default.
func TestI10_NonASCIIIsFoundByNumber(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"p\u00e4ssw\u00f6rd", "l\u00f8sen\u20acord", "\u043f\u0430\u0440\u043e\u043b\u044c", "key\U0001f511key\u00e4"} {
		set := Compile([][]byte{[]byte(value)}, Options{})
		replace := ReplaceBy([][]byte{[]byte(testPlaceholder)})
		ascii, entities, hexEntities := "", "", ""
		for _, r := range value {
			if r > 127 {
				for _, u := range utf16.Encode([]rune{r}) {
					ascii += fmt.Sprintf(`\u%04x`, u)
				}
			} else {
				ascii += string(r)
			}
			entities += fmt.Sprintf("&#%d;", r)
			hexEntities += fmt.Sprintf("&#x%x;", r)
		}
		spellings := []string{value, percentOf(value), ascii, upperDigits(ascii), entities, hexEntities}
		for _, spelling := range spellings {
			data := []byte("{\"a\":\"" + spelling + "\"}")
			want := "{\"a\":\"" + testPlaceholder + "\"}"
			for pieces := range uint64(8) {
				if got := feed(t, NewStream(set, replace, false), data, pieces*0x9249249249249249); string(got) != want {
					t.Errorf("%q, pieces %d: got %q", spelling, pieces, got)
				}
			}
		}
	}
}

// TestI10_HeadsEndBetweenCharacters: of a long value a beginning is kept, whose last character is not cut in two.
func TestI10_HeadsEndBetweenCharacters(t *testing.T) {
	t.Parallel()
	for shift := range 3 {
		value := []byte(strings.Repeat("k", shift) + strings.Repeat("\u9375", headSize))
		set := Compile([][]byte{value}, Options{})
		for _, big := range []bool{false, true} {
			if text := base64.StdEncoding.EncodeToString(toUTF16(value, big)); !found64(set, text) {
				t.Errorf("shift %d, big %v: %q passes", shift, big, text)
			}
		}
	}
}

func found64(set *Set, text string) bool {
	_, hit := set.Find("see " + text)
	return hit
}

func percentOf(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&out, "%%%02x", c)
	}
	return out.String()
}

// upperDigits writes the digits of \u escapes in capitals.
func upperDigits(s string) string {
	parts := strings.Split(s, `\u`)
	for i := 1; i < len(parts); i++ {
		parts[i] = strings.ToUpper(parts[i][:4]) + parts[i][4:]
	}
	return strings.Join(parts, `\u`)
}

func TestReplaceKeepsBase64Decodable(t *testing.T) {
	t.Parallel()
	for n := minPattern + 6; n < 24; n++ {
		value := strings.Repeat("Va1ue-", 4)[:n]
		set := Compile([][]byte{[]byte(value)}, Options{})
		replace := ReplaceBy([][]byte{[]byte(testPlaceholder)})
		for _, before := range []string{"", "u", "us", "use", "user:"} {
			for _, after := range []string{"", "x", "xy", "xyz"} {
				in := base64.StdEncoding.EncodeToString([]byte(before + value + after))
				got, hit, err := set.Replace(in+" ", replace)
				if err != nil || !hit {
					t.Fatalf("value %q before %q after %q: hit %v, err %v", value, before, after, hit, err)
				}
				plain, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(got, " "))
				if err != nil {
					t.Fatalf("value %q before %q after %q: %q: %v", value, before, after, got, err)
				}
				text := string(plain)
				if !strings.HasPrefix(text, before+testPlaceholder) || !strings.HasSuffix(text, after) {
					t.Errorf("value %q before %q after %q: decodes to %q", value, before, after, text)
				}
				if after == "" && text != before+testPlaceholder {
					t.Errorf("value %q before %q at the end: decodes to %q", value, before, text)
				}
			}
		}
	}
}

func TestPiecesDontChangeStreams(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	random := rand.New(rand.NewPCG(1, 2))
	for name, text := range spelled(testValue) {
		text = "before " + text + " between ghp_R3 " + text + " after"
		want, _, err := set.Replace(text, replace)
		if err != nil {
			t.Fatal(err)
		}
		for range 50 {
			got := inPieces(t, NewStream(set, replace, false), text, func() int { return 1 + random.IntN(7) })
			if got != want {
				t.Fatalf("%s:\n got %q\nwant %q", name, got, want)
			}
		}
	}
}

func TestI10_LiveStreamNeverGivesTheValue(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	for name, text := range spelled(testValue) {
		got := inPieces(t, NewStream(set, replace, true), "x "+text+" y", func() int { return 1 })
		if _, hit := set.Find(got); hit {
			t.Errorf("%s: the value is in %q", name, got)
		}
	}
}

func TestOrdinaryStreamsAreNotHeld(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	st := NewStream(set, replace, true)
	for _, piece := range []string{"data: g\n\n", "data: gh\n\n", "data: 100%\n\n", "data: \\\n\n", "Z", "Z2"} {
		got, err := st.Push(nil, []byte(piece), false)
		if err != nil || string(got) != piece {
			t.Errorf("got %q, %v; want %q at once", got, err, piece)
		}
	}
	if got, err := st.Push(nil, []byte(testValue), false); err != nil || string(got) != testPlaceholder {
		t.Errorf("got %q, %v of a value that is whole", got, err)
	}
}

func TestFoldFindsAnyCase(t *testing.T) {
	t.Parallel()
	set := Compile([][]byte{[]byte(testPlaceholder)}, Options{Fold: true})
	h, ok := set.Find("x" + strings.ToUpper(testPlaceholder[:20]) + strings.ToLower(testPlaceholder[20:]) + "x")
	if !ok || h.Exact {
		t.Errorf("got %v, exact %v; want an inexact hit", ok, h.Exact)
	}
	h, ok = set.Find("token " + testPlaceholder)
	if !ok || !h.Exact {
		t.Errorf("got %v, exact %v; want an exact hit", ok, h.Exact)
	}
}

// TestI10_PaddingStaysPercentEscaped: in a query, base64 that ends with the value keeps its own way of writing =.
func TestI10_PaddingStaysPercentEscaped(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	for _, before := range []string{"u", "use"} {
		encode := func(v string) string { return url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(before + v))) }
		got, _, err := set.Replace("t="+encode(testValue)+"&a=1", replace)
		if want := "t=" + encode(testPlaceholder) + "&a=1"; err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func inPieces(t *testing.T, st *Stream, text string, size func() int) string {
	t.Helper()
	var out []byte
	var err error
	for rest := []byte(text); ; {
		n := min(size(), len(rest))
		out, err = st.Push(out, rest[:n], n == len(rest))
		if err != nil {
			t.Fatal(err)
		}
		if n == len(rest) {
			return string(out)
		}
		rest = rest[n:]
	}
}

// TestI11_IdleStreamsKeepNoOldSet: a stream that follows another set lets go of the one before with its last piece.
func TestI11_IdleStreamsKeepNoOldSet(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	old := weak.Make(set)
	st := NewAnswerStream(set, replace, true).Follow(func() (*Set, Replacer) { return set, replace })
	if out, err := st.Push(nil, []byte("see "+testValue+" and "+testValue[:20]), false); err != nil || string(out) != "see "+testPlaceholder+" and " {
		t.Fatalf("%q, %v", out, err)
	}
	set, replace = compile()
	for range 3 {
		runtime.GC()
	}
	if old.Value() != nil {
		t.Error("the set is kept, though there is another one")
	}
	if out, _ := st.Push(nil, []byte(testValue[20:]+" "), false); string(out) != testPlaceholder+" " {
		t.Errorf("the next piece with its beginning gives %q", out)
	}
}

func BenchmarkStream(b *testing.B) {
	set, replace := compile()
	for name, text := range map[string][]byte{
		"zeros":  make([]byte, 32<<10),
		"json":   bytes.Repeat([]byte(`{"id":12345,"name":"A name","text":"some \"quoted\" text\nand more"},`), 480),
		"random": func() []byte { b := make([]byte, 32<<10); rand.NewChaCha8([32]byte{}).Read(b); return b }(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(text)))
			st := NewStream(set, replace, false)
			var out []byte
			for b.Loop() {
				out, _ = st.Push(out[:0], text, false)
			}
		})
	}
}

// TestFinderStopsAtEachSpecialByte and at no other, from wherever it goes on.
func TestFinderStopsAtEachSpecialByte(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		b := make([]byte, random.IntN(80))
		for i := range b {
			b[i] = byte(random.IntN(256))
			if special[b[i]] && random.IntN(8) > 0 {
				b[i] = 'a'
			}
		}
		var f finder
		f.reset()
		for from := 0; from <= len(b); from += 1 + random.IntN(20) {
			want := from
			for want < len(b) && !special[b[want]] {
				want++
			}
			if got := f.next(b, from); got != want {
				t.Fatalf("%q from %d: %d, want %d", b, from, got, want)
			}
		}
	}
}
