package mask

import (
	"encoding/json"
	"html"
	"net/url"
	"strings"
	"testing"
)

// TestI10_TextInFrontUnmasksNothing: a guest has a server repeat its placeholder behind text of its choice, which makes
// an escape with the value's beginning, while the value is written with escapes of another kind.
func TestI10_TextInFrontUnmasksNothing(t *testing.T) {
	t.Parallel()
	quoted := func(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
	writers := map[string]func(string) string{
		"JSON of PHP": func(s string) string { return strings.ReplaceAll(quoted(s), "/", `\/`) },
		"JSON of Go":  func(s string) string { b, _ := json.Marshal(s); return string(b) },
		"JSON":        quoted, "HTML": html.EscapeString, "form": url.QueryEscape, "path": url.PathEscape,
		"JSON in a form": func(s string) string { return url.QueryEscape(strings.ReplaceAll(quoted(s), "/", `\/`)) },
		"HTML in JSON":   func(s string) string { return strings.ReplaceAll(quoted(html.EscapeString(s)), "/", `\/`) },
		"base64 in JSON": func(s string) string {
			return strings.ReplaceAll(quoted(s[:strings.IndexByte(s, 1)]+folded(base64Of(s[strings.IndexByte(s, 1)+1:]), 20, "\n")), "/", `\/`)
		},
	}
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	r := newRandom(11)
	shown, literal := 0, 0
	for _, others := range []string{"+/", "+/&<\"'=!$%", "_-"} {
		for range 40 {
			from, b := alphabet+others, []byte(nil)
			for range 12 + r.IntN(30) {
				b = append(b, from[r.IntN(len(from))])
			}
			value := string(b)
			set := Compile([][]byte{b}, Options{})
			for name, write := range writers {
				for _, start := range []string{"", "%", "&#", "&#x", "&", `\`, `\x`, `\u`, `\u{`, "%u", "=", `\U000000`, `\u00`, "%u00", "%2", `\0`, "&#x000", "&#0000"} {
					for _, digits := range []string{"", "0", "00", "2", "a", "6", "61"} {
						before := start + digits
						if name == "base64 in JSON" {
							before += "\x01"
						}
						text := write(before + value)
						if strings.Contains(text, "\x01") {
							t.Fatalf("%q", text)
						}
						if strings.Contains(text, value) {
							literal++
						}
						if _, hit := set.Find(text); hit {
							continue
						}
						if shown++; shown <= 5 {
							t.Errorf("%s, %q behind %q passes: %q", name, value, before, text)
						}
					}
				}
			}
		}
	}
	t.Logf("%d pass; %d stand as they are", shown, literal)
}

// TestI10_TextBeforePiecesUnmasksNothing: the same on a live answer, cut anywhere.
func TestI10_TextBeforePiecesUnmasksNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ value, text string }{
		{"a3T0k3nV4lue/F0rTests", `{"t":"%a3T0k3nV4lue\/F0rTests"}`}, {"a3T0k3nV4lue&F0rTests", `<p>\xa3T0k3nV4lue&amp;F0rTests`},
		{"n3T0k3nV4lue&F0rTests", `<p>\n3T0k3nV4lue&amp;F0rTests`}, {"a/T0k3nV4lueF0rTests", `{"t":"&#xa\/T0k3nV4lueF0rTests"}`},
		{"a3T0k3nV4lue/F0rTests", `t=%22%26%23xa3T0k3nV4lue%5C%2FF0rTests%22`},
	} {
		set, replace := Compile([][]byte{[]byte(c.value)}, Options{}), ReplaceBy([][]byte{[]byte("<>")})
		for size := 1; size < len(c.text); size++ {
			for _, live := range []bool{false, true} {
				if out := inPieces(t, NewAnswerStream(set, replace, live), c.text, func() int { return size }); strings.Contains(out, c.value[7:12]) {
					t.Errorf("live %v, in pieces of %d: %q", live, size, out)
				}
			}
		}
	}
}
