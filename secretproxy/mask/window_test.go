package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
)

// TestI11_StreamsKeepWithinTheirBound: what a server sends in front of nothing, of any length, is kept within the
// bound, and comes out as it went in.
func TestI11_StreamsKeepWithinTheirBound(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	const long = 60_000
	runs := func(c string) string {
		of := ""
		for n := range 60 {
			of += "x" + strings.Repeat(c, n)
		}
		return strings.Repeat(of, long/len(of))
	}
	for name, data := range map[string]string{
		"one token":            strings.Repeat("q", long),
		"zeros of an entity":   "x &#" + strings.Repeat("0", long) + "103;",
		"many such":            strings.Repeat("&#"+strings.Repeat("0", 3000)+"103;", 100),
		"an indent":            "abcdefghijkl\n" + strings.Repeat(" ", long) + "mnop",
		"tabs and blanks":      "abcdefghijkl\n" + strings.Repeat("\t"+strings.Repeat(" ", 99), long/100) + "x",
		"zeros in a beginning": testValue[:9] + strings.Repeat("\x00", long) + "x",
		"lines in a beginning": testValue[:9] + strings.Repeat("\n", long) + "x",
		"the beginning":        strings.Repeat(testValue[:21], long/21),
		"digits":               strings.Repeat("0", 40) + "1" + strings.Repeat("0", long),
		"runs of blanks":       runs(" "),
		"runs of zeros":        runs("0"),
		"escapes":              strings.Repeat(`\\`, long/2),
		"ampersands":           strings.Repeat("&", long),
	} {
		for _, size := range []int{300, 4096} {
			for kind, st := range map[string]*Stream{
				"live": NewAnswerStream(set, replace, true), "body": NewAnswerStream(set, replace, false), "request": NewStream(set, replace, false),
			} {
				var out []byte
				for rest := data; len(rest) > 0; {
					n := min(size, len(rest))
					var err error
					if out, err = st.Push(out, []byte(rest[:n]), n == len(rest)); err != nil {
						t.Fatal(err)
					}
					if rest = rest[n:]; len(rest) > 0 && len(st.buf) > st.Bound()+size {
						t.Fatalf("%s, %s, pieces of %d: %d bytes are kept, the bound is %d", name, kind, size, len(st.buf), st.Bound())
					}
				}
				if string(out) != data {
					t.Errorf("%s, %s, pieces of %d: %d bytes came out of %d", name, kind, size, len(out), len(data))
				}
			}
		}
	}
}

// TestI10_LongWideValuesAreMasked: values up to the largest, in spellings of many bytes a character.
func TestI10_LongWideValuesAreMasked(t *testing.T) {
	t.Parallel()
	for _, n := range []int{700, 8 << 10} {
		value := []byte(strings.Repeat("k3y-0f_a/v4lue+", n/15+1)[:n])
		for i := range value {
			if value[i] == '-' {
				value[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[i/15%26] // no period: a part is no whole
			}
		}
		set, replace := Compile([][]byte{value}, Options{}), ReplaceBy([][]byte{[]byte("<>")})
		for name, text := range map[string]string{
			"as it is": string(value), "JSON": eachUnit(string(value), `\u%04x`), "JSON in JSON": eachUnit(string(value), `\\u%04x`),
			"percent twice": eachByte(string(value), "%%25%02X"), "HTML": eachRune(string(value), "&#%016d;"),
			"base64 twice": base64Of(base64Of(string(value))), "folded": folded(base64Of(string(value)), 60, "\n"+strings.Repeat(" ", 50)),
		} {
			for _, live := range []bool{false, true} {
				out := inPieces(t, NewAnswerStream(set, replace, live), "t="+text+" end", func() int { return 1500 })
				if part := showsPart(out, text, n); part != "" {
					t.Errorf("%d characters, %s, live %v: %.60q is shown", n, name, live, part)
				}
			}
		}
	}
}

// TestI10_EachSpellingIsKnown: one value for each spelling that a matcher could lack without another noticing.
// With the defence off, no needles, all of them come out.
func TestI10_EachSpellingIsKnown(t *testing.T) {
	t.Parallel()
	const value = "key~~~???>>>value1Az"
	texts := map[string]string{
		"HEX":          strings.ToUpper(hex.EncodeToString([]byte(value))),
		"\\x":          eachByte(value, `\x%02x`),
		"\\X digits":   eachByte(value, `\x%02X`),
		"base64 std":   base64Of(value),
		"UPPER":        strings.ToUpper(value),
		"&lowbar;":     strings.ReplaceAll(value, "~", "&#126;"),
		"named HTML":   strings.ReplaceAll(strings.ReplaceAll(value, "?", "&quest;"), ">", "&gt;"),
		"octal, short": strings.ReplaceAll(value, "~", `\176`),
	}
	for _, before := range []string{"", "x", "xy"} {
		texts["base64url"+before] = base64.RawURLEncoding.EncodeToString([]byte(before + value))
	}
	set, off := Compile([][]byte{[]byte(value)}, Options{}), Compile(nil, Options{})
	for name, text := range texts {
		if _, ok := set.Find("t=" + text + " "); !ok {
			t.Errorf("%s: not found in %q", name, text)
		}
		if _, ok := off.Find("t=" + text + " "); ok {
			t.Errorf("%s: found without a needle", name)
		}
	}
	if !strings.ContainsAny(texts["base64url"], "-_") || !strings.ContainsAny(texts["base64 std"], "+/") {
		t.Error("the value's base64 has none of the characters in which the alphabets differ")
	}
}

// TestI10_OverlappingNeedlesAreMaskedWhole: two values that share their end and beginning.
func TestI10_OverlappingNeedlesAreMaskedWhole(t *testing.T) {
	t.Parallel()
	set := Compile([][]byte{[]byte("abcdefghijkl-mnopqrst"), []byte("mnopqrst-uvwxyzABCDEF")}, Options{})
	replace := ReplaceBy([][]byte{[]byte("<1>"), []byte("<2>")})
	for _, text := range []string{"abcdefghijkl-mnopqrst-uvwxyzABCDEF", "abcdefghijkl-mnopqrst%2duvwxyzABCDEF"} {
		for size := 1; size < 40; size++ {
			out := inPieces(t, NewAnswerStream(set, replace, false), "{"+text+"}", func() int { return size })
			if out != "{<1>}" {
				t.Fatalf("in pieces of %d: %q", size, out)
			}
		}
	}
}

// TestI10_KeysInPEMAreMasked: whole, folded otherwise, as JSON, and each of their lines.
func TestI10_KeysInPEMAreMasked(t *testing.T) {
	t.Parallel()
	line := func(c string) string { return strings.Repeat(c+"3xY/0+q", 8) }
	pem := "-----BEGIN PRIVATE KEY-----\n" + line("a") + "\n" + line("b") + "\nQz9/" + "\n-----END PRIVATE KEY-----\n"
	account := "{\n  \"type\": \"service_account\",\n  \"private_key\": \"" + jsonText(pem, false) + "\"\n}"
	for _, value := range []string{strings.TrimSpace(pem), account} {
		set, replace := Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{[]byte("<>")})
		for name, text := range map[string]string{
			"as it is": value, "CRLF": strings.ReplaceAll(value, "\n", "\r\n"), "JSON": jsonText(value, true), "JSON twice": jsonText(jsonText(value, true), true),
			"form": urlEscaped(value), "a line": "see " + line("b"), "in one line": line("a") + line("b") + "Qz9/",
		} {
			for _, live := range []bool{false, true} {
				out := inPieces(t, NewAnswerStream(set, replace, live), text+" ", func() int { return 11 })
				if strings.Contains(out, line("a")[:12]) || strings.Contains(out, line("b")[:12]) {
					t.Errorf("%s, live %v: %q", name, live, out)
				}
			}
		}
	}
}

// TestI10_Base64RunsAreMaskedAlone: from 32 characters on, in values with blanks or brackets.
func TestI10_Base64RunsAreMaskedAlone(t *testing.T) {
	t.Parallel()
	for length, masked := range map[int]bool{31: false, 32: true, 33: true, 63: true, 64: true} {
		run := strings.Repeat("a3xY/0+q", 9)[:length]
		for _, value := range []string{"key: " + run + " end", "[" + run + "]", run + "\n" + run + "\n"} {
			if _, hit := Compile([][]byte{[]byte(value)}, Options{}).Find("see " + run); hit != masked {
				t.Errorf("a run of %d in %.12q…: masked %v", length, value, hit)
			}
		}
	}
}

// TestI10_EscapedKeyLinesAreMasked: a secret store writes a key as a string of a string, with \/ for /.
func TestI10_EscapedKeyLinesAreMasked(t *testing.T) {
	t.Parallel()
	line := strings.Repeat("a3xY/0+q", 8)
	value := "-----BEGIN PRIVATE KEY----- " + line + " -----END PRIVATE KEY-----"
	for times := range maxDepth + 1 {
		set := Compile([][]byte{[]byte(value)}, Options{})
		if _, hit := set.Find("see " + line); !hit {
			t.Errorf("the line of a key that is escaped %d times passes", times)
		}
		value = strings.ReplaceAll(strings.ReplaceAll(value, `\`, `\\`), "/", `\/`)
	}
}

func urlEscaped(s string) string { return escapeSpellings[0].of(s) }

// TestCompleteMessagesPassAtOnce: events, lines of JSON and messages of gRPC that end with tokens.
func TestCompleteMessagesPassAtOnce(t *testing.T) {
	t.Parallel()
	set, replace := compile()
	message := []byte("\x0a\x18an-identifier-of-a-thing")
	grpc := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	for contentType, messages := range map[string][]string{
		"text/event-stream":        {"data: {\"delta\":\"unbelievable\"}\n\n", "event: completion_finished\r\ndata: 0123456789abcdef\r\n\r\n", ": keep-alive-comment\n\n"},
		"application/x-ndjson":     {"{\"a\":\"b\"}\n", "\"a-string-of-some-length\"\n", "123456789012\r\n"},
		"application/json":         {"1234567890123\n"},
		"application/grpc+proto":   {string(grpc), string(grpc) + string(grpc)},
		"application/grpc":         {"\x00\x00\x00\x000abc", strings.Repeat("y", '0'-len("abc")) + "\x00\x00\x00\x000abcdef", strings.Repeat("y", '0'-len("abcdef"))},
		"application/connect+json": {string(grpc)},
	} {
		st := NewAnswerStream(set, replace, true).Framed(FramingOf(contentType))
		for range 3 {
			for _, m := range messages {
				if out, err := st.Push(nil, []byte(m), false); string(out) != m || err != nil {
					t.Errorf("%s: of %q came %q at once (%v)", contentType, m, out, err)
				}
				masked := strings.Replace(m, "ident", testValue, 1)
				if strings.HasPrefix(contentType, "text") {
					masked = "data: " + testValue + "\n\n"
				}
				out, err := NewAnswerStream(set, replace, true).Push(nil, []byte(masked), false)
				if bytes.Contains(out, []byte(testValue)) || err != nil {
					t.Errorf("%s: %q (%v)", contentType, out, err)
				}
			}
		}
	}
}

// TestI10_EscapesInFrontSwallowNoValue: text before a value that makes an escape with its beginning. A value
// with a wrong first character is none.
func TestI10_EscapesInFrontSwallowNoValue(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"deadbeefcafe0123456789", "n0t-a-newline-0123456789", "101-octal-0123456789", "x41-0123456789abcdef", "u0041-0123456789abcdef", "a5-bell-0123456789abc"} {
		set, replace := Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{[]byte("<>")})
		for _, before := range []string{"%", `\`, "100%", `C:\`, "&#x", "&#", `\x`, `\u`, "%u"} {
			for _, live := range []bool{false, true} {
				for size := range 30 {
					out := inPieces(t, NewAnswerStream(set, replace, live), before+value+" ", func() int { return size + 1 })
					if strings.Contains(out, value[8:]) {
						t.Errorf("%q in front, live %v, pieces of %d: %q", before, live, size+1, out)
					}
				}
			}
		}
		for wrong := range value {
			guess := value[:wrong] + "~" + value[wrong+1:]
			if out, hit, _ := set.Replace("see "+guess+" ", replace); hit {
				t.Errorf("%q became %q", guess, out)
			}
		}
	}
}
