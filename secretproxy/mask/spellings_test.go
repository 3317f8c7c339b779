package mask

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"mime/quotedprintable"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// spelling is a line of the table in docs/secrets.md, or a part of one.
type spelling struct {
	name string
	of   func(s string) string
}

// escapeSpellings change single characters.
var escapeSpellings = []spelling{
	{"percent, where needed", url.QueryEscape},
	{"percent, path", url.PathEscape},
	{"percent, all", func(s string) string { return eachByte(s, "%%%02x") }},
	{"PERCENT, all", func(s string) string { return eachByte(s, "%%%02X") }},
	{"%uXXXX", func(s string) string { return eachUnit(s, "%%u%04x") }},
	{"JSON", func(s string) string { return jsonText(s, true) }},
	{"JSON without HTML", func(s string) string { return jsonText(s, false) }},
	{"JSON \\/", func(s string) string { return strings.ReplaceAll(jsonText(s, false), "/", `\/`) }},
	{"\\uXXXX", func(s string) string { return eachUnit(s, `\u%04X`) }},
	{"\\u{X}", func(s string) string { return eachRune(s, `\u{%x}`) }},
	{"\\u{0X}", func(s string) string { return eachRune(s, `\u{%040x}`) }},
	{"\\UXXXXXXXX", func(s string) string { return eachRune(s, `\U%08x`) }},
	{"\\xXX", func(s string) string { return eachByte(s, `\x%02x`) }},
	{"octal", func(s string) string { return eachByte(s, `\%03o`) }},
	{"strconv.Quote", func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] }},
	{"HTML, where needed", html.EscapeString},
	{"&#D;", func(s string) string { return eachRune(s, "&#%d;") }},
	{"&#D", func(s string) string { return eachRune(s, "&#%d") }},
	{"&#xX;", func(s string) string { return eachRune(s, "&#x%X;") }},
	{"&#0D;", func(s string) string { return eachRune(s, "&#%07d;") }},
	{"&#00…D;", func(s string) string { return eachRune(s, "&#%0200d;") }},
	{"backslash before punctuation", func(s string) string {
		for _, c := range "\\_*+-.#!/~" {
			s = strings.ReplaceAll(s, string(c), `\`+string(c))
		}
		return s
	}},
	{"quoted-printable", func(s string) string {
		var b bytes.Buffer
		w := quotedprintable.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
		return b.String()
	}},
}

// formSpellings depend on more than one character.
var formSpellings = []spelling{
	{"as it is", func(s string) string { return s }},
	{"lower case", strings.ToLower},
	{"UPPER CASE", strings.ToUpper},
	{"hex", func(s string) string { return hex.EncodeToString([]byte(s)) }},
	{"HEX", func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) }},
	{"base64", base64Of},
	{"base64 behind one byte", func(s string) string { return base64Of("x" + s + "yz") }},
	{"base64 behind two bytes", func(s string) string { return base64Of("xy" + s + "y") }},
	{"base64url", func(s string) string { return base64.URLEncoding.EncodeToString([]byte(s)) }},
	{"base64url behind a byte", func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte("~" + s + "?")) }},
	{"base64 in lines", func(s string) string { return folded(base64Of(s), 64, "\r\n") }},
	{"base64 in indented lines", func(s string) string { return folded(base64Of(s), 20, "\n  \t ") }},
	{"base64 in very indented lines", func(s string) string { return folded(base64Of(s), 17, "\n"+strings.Repeat(" ", 3000)) }},
	{"base64 twice", func(s string) string { return base64Of(base64Of(s)) }},
	{"base64 twice, both behind a byte", func(s string) string { return base64Of("p" + base64Of("q"+s+"r") + "st") }},
	{"base64 of UTF-16LE", func(s string) string { return base64Of(string(toUTF16([]byte(s), false))) }},
	{"base64 of UTF-16BE", func(s string) string { return base64Of("x" + string(toUTF16([]byte(s), true))) }},
	{"UTF-16LE", func(s string) string { return string(toUTF16([]byte(s), false)) }},
	{"UTF-16BE", func(s string) string { return string(toUTF16([]byte(s), true)) }},
	{"base32", func(s string) string { return base32.StdEncoding.EncodeToString([]byte(s)) }},
	{"base32 behind two bytes", func(s string) string { return strings.ToLower(base32.StdEncoding.EncodeToString([]byte("xy" + s))) }},
	{"numbers", func(s string) string { return "[" + string(decimals([]byte(s), ",")) + "]" }},
	{"numbers, JSON with blanks", func(s string) string { return "[ " + string(decimals([]byte(s), ", ")) + " ]" }},
	{"numbers in lines", func(s string) string { return "[\n  " + string(decimals([]byte(s), ",\n  ")) + "\n]" }},
	{"numbers, %v", func(s string) string { return "[" + string(decimals([]byte(s), " ")) + "]" }},
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func eachByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, format, s[i])
	}
	return b.String()
}

func eachRune(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, format, r)
	}
	return b.String()
}

func eachUnit(s, format string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&b, format, u)
	}
	return b.String()
}

func jsonText(s string, forHTML bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(forHTML)
	_ = e.Encode(s)
	return b.String()[1 : b.Len()-2]
}

func folded(s string, width int, separator string) string {
	var out []string
	for len(s) > width {
		out, s = append(out, s[:width]), s[width:]
	}
	return strings.Join(append(out, s), separator)
}

// randomValue draws from everything that a source may hold.
func randomValue(r *rand.Rand) string {
	const token = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	alphabets := []string{
		token, token + "-._~+/=", token + `!#$%&'*+-./:;=?@\^_|~"` + "`,", token + `%&\"`, token + " (){}[]<>", token + "\n", token + "\t\r\n \\",
		token + "äößéЖ€🔑", token + token + "\n\t !\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
	}
	alphabet := []rune(alphabets[r.IntN(len(alphabets))])
	n := 16 + r.IntN(40)
	if r.IntN(12) == 0 {
		n = 500 + r.IntN(1000)
	}
	own := r.IntN(3) == 0 // escapes of its own
	var b strings.Builder
	for b.Len() < n {
		if own && r.IntN(4) == 0 {
			b.WriteString(ownEscapes[r.IntN(len(ownEscapes))])
		}
		b.WriteRune(alphabet[r.IntN(len(alphabet))])
	}
	if r.IntN(8) == 0 {
		b.WriteString([]string{`\`, "%", "&", `\\`, "%5", "=", "&#6", `\u00`}[r.IntN(8)])
	}
	return b.String()
}

// ownEscapes are what values may hold that a text writes for something else, some of them one within the other.
var ownEscapes = []string{"%5C", "%5c\n", "%25", "%2541", "%41", `\n`, `\\`, `\u005c`, `\x25`, `\"`, "&amp;", "&#37;", "&bsol;", "&amp;#65;", "=3D", "=5C", `\`, "%", "&", "%0A", `\r\n`}

// TestI10_OwnEscapesHideNoValue: of values that hold escapes, or the beginning of one at their end, in texts that
// escape by another rule or go on with the rest of it.
func TestI10_OwnEscapesHideNoValue(t *testing.T) {
	t.Parallel()
	for value, texts := range map[string][]string{
		`k3y%5C\n0123456789abc`: {jsonText(`k3y%5C\n0123456789abc`, true), urlEscaped(jsonText(`k3y%5C\n0123456789abc`, true))},
		`k3y0123456789abcdef\`:  {"\x00k\x003\x00y\x000\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00a\x00b\x00c\x00d\x00e\x00f\x00\\"},
		`k3y"0123456789abcdef%`: {jsonText(`k3y"0123456789abcdef%`, true)},
		`k3y<0123456789abcdef&`: {strings.ReplaceAll(`k3y<0123456789abcdef&`, "<", `\u003c`)},
		`k3y"0123456789%5`:      {jsonText(`k3y"0123456789%5`, true)},
	} {
		set, replace := Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{[]byte("<>")})
		for _, text := range texts {
			for _, behind := range []string{"", `"`, "41", "#65;", "amp;", "n", "C", "=", "\n"} {
				for size := 1; size < len(text)+5; size++ {
					out := inPieces(t, NewAnswerStream(set, replace, false), "{"+text+behind+"}", func() int { return size })
					if out = strings.ReplaceAll(out, "\x00", ""); !strings.HasPrefix(out, "{<>") {
						t.Fatalf("%q with %q behind, in pieces of %d: %q", text, behind, size, out)
					}
				}
			}
		}
	}
}

// TestI10_QuotedPrintableBreaksHideNoValue: behind 76 characters quoted-printable text has a line break, which a
// string spells \r\n or \n.
func TestI10_QuotedPrintableBreaksHideNoValue(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(76, 1))
	for n := 60; n < 400; n += 7 {
		value := make([]byte, n)
		for i := range value {
			value[i] = "abcXYZ0189_-./+"[r.IntN(15)]
		}
		var b strings.Builder
		w := quotedprintable.NewWriter(&b)
		_, _ = w.Write(value)
		_ = w.Close()
		for _, text := range []string{b.String(), strings.ReplaceAll(b.String(), "\r\n", "\n")} {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			text := string(quoted[1 : len(quoted)-1])
			for how, out := range inEveryWay(t, r, string(value), text) {
				if part := showsPart(out, text, n); part != "" && how != "to servers" {
					t.Errorf("%d characters, %s: %q is shown", n, how, part)
				}
			}
		}
	}
}

// TestI10_I17_NoSpellingShowsEightCharacters: a value in a spelling of the table, alone or with an escape
// around it, in a whole body that is cut anywhere, in one piece of a live stream, or in pieces of one if it is
// a token, never shows eight of its characters in a row. MSB_SPELLINGS is the number of tries.
func TestI10_I17_NoSpellingShowsEightCharacters(t *testing.T) {
	t.Parallel()
	tries := 300
	if n, err := strconv.Atoi(os.Getenv("MSB_SPELLINGS")); err == nil {
		tries = n
	}
	shown := 0
	for seed := range tries {
		r := rand.New(rand.NewPCG(14, uint64(seed)))
		value := randomValue(r)
		all := append(escapeSpellings[:len(escapeSpellings):len(escapeSpellings)], formSpellings...)
		inner := all[r.IntN(len(all))]
		text, name := inner.of(value), inner.name
		if outer := r.IntN(2 * len(escapeSpellings)); outer < len(escapeSpellings) && utf8.ValidString(text) && len(value) < 100 {
			if outer == 0 && (strings.Contains(name, "indented") || strings.Contains(name, "in lines")) {
				outer = 1 // a form's + for an indent would be a character of base64
			}
			text, name = escapeSpellings[outer].of(text), escapeSpellings[outer].name+" of "+name
		}
		for how, out := range inEveryWay(t, r, value, text) {
			if how == "to servers" && strings.Contains(name, " of ") {
				continue // a placeholder is looked for as it is sent, not as it is shown
			}
			if part := showsPart(out, text, len([]rune(value))); part != "" && shown < 10 {
				shown++
				t.Errorf("try %d, %s, %s: %q is shown of the value %.80q", seed, how, name, part, value)
			}
		}
	}
}

// inEveryWay returns what comes out when text is sent in all ways in which it must be masked.
func inEveryWay(t *testing.T, r *rand.Rand, value, text string) map[string]string {
	t.Helper()
	set, replace := Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{[]byte("<>")})
	around := [][2]string{{`{"t":"`, `"}`}, {"<b>", "</b>"}, {"", ""}, {"\n", "\n\n"}}[r.IntN(4)]
	data := []byte(around[0] + text + around[1])
	whole, _, err := set.ReplaceBytes(data, replace)
	if err != nil {
		t.Fatal(err)
	}
	size := 1 + r.IntN(max(1, r.IntN(len(data)+1)))
	pieces := func() int { return 1 + r.IntN(size) }
	out := map[string]string{
		"whole":      string(whole),
		"body":       inPieces(t, NewAnswerStream(set, replace, false), string(data), pieces),
		"one piece":  inPieces(t, NewAnswerStream(set, replace, true), string(data)+" ", func() int { return len(data) }),
		"to servers": inPieces(t, NewStream(set, replace, false), string(data), pieces),
	}
	if len(collapsed([]byte(text))) > maxWidth*len(value) {
		delete(out, "body")
		delete(out, "to servers")
		return out
	}
	shown := strings.ReplaceAll(text, "\x00", "")
	for i := range len(shown) {
		if c := classes[shown[i]]; c != classToken {
			if i == 0 || c == classEnd || c == classBlank && shown[i-1] != '\n' && shown[i-1] != ' ' && shown[i-1] != '\t' ||
				c == classBreak && (shown[i-1] == '\n' || shown[i-1] == ' ' || shown[i-1] == '\r' && shown[i] == '\r') {
				return out
			}
		}
	}
	if i := strings.IndexAny(shown, "\r\n"); i < 0 || i >= minRun {
		out["live"] = inPieces(t, NewAnswerStream(set, replace, true), string(data), pieces)
	}
	return out
}

// showsPart returns as much of text as eight of a value's n characters take up, if it is in out.
func showsPart(out, text string, n int) string {
	width := (8*len(text) + n - 1) / n
	for before := ""; before != text; {
		before = text
		for _, padding := range []string{"=3D", "=3d", "=\r\n", "=\n", "%3D", "%3d", "="} { // of base64 and base32, themselves in an escape too
			text = strings.TrimSuffix(text, padding)
		}
	}
	for i := 0; i+width <= len(text); i += 1 + width/40 {
		if strings.Contains(out, text[i:i+width]) {
			return text[i : i+width]
		}
	}
	return ""
}

// TestI10_WideIndentsHideNoValue: an indent behind a line break of a value, each character of it with a zero, as
// JSON and programming languages write it.
func TestI10_WideIndentsHideNoValue(t *testing.T) {
	t.Parallel()
	const value = "t4b=3Dqc%tk74\tG0%5c\nYr%LYe&bsol;a9zlqS8z\n H%0ATN k1l"
	r := rand.New(rand.NewPCG(1, 1))
	for _, zero := range []string{`\u0000`, `\x00`} {
		for _, pattern := range []string{"%c" + zero, zero + "%c"} {
			var text string
			for _, c := range value {
				text += fmt.Sprintf(pattern, c)
			}
			text = strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text)
			for how, out := range inEveryWay(t, r, value, text) {
				if part := showsPart(out, text, len(value)); part != "" {
					t.Errorf("%s, %s: %q is shown", pattern, how, part)
				}
			}
		}
	}
}
