package mask

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// form is a spelling that depends on more than one character of the needle.
type form uint8

const (
	formRaw       form = iota
	formCase           // the needle in another case
	formHex            // lower or upper case
	formBase64         // alphabet with + and /
	formBase64URL      // alphabet with - and _
)

// minPattern is the shortest pattern in bytes. Base64 of a very short needle at
// an odd alignment has fewer characters of its own; such a pattern would be
// found by chance.
const minPattern = 6

// spellings returns the patterns of one needle.
func spellings(n int, needle []byte) []pattern {
	out := []pattern{{text: needle, needle: n, form: formRaw}}
	add := func(text []byte, f form, phase int) {
		if len(text) >= minPattern {
			out = append(out, pattern{text: text, needle: n, form: f, phase: phase})
		}
	}
	for _, variant := range [][]byte{bytes.ToLower(needle), bytes.ToUpper(needle)} {
		if !bytes.Equal(variant, needle) {
			add(variant, formCase, 0)
		}
	}
	if bytes.IndexByte(needle, ' ') >= 0 { // application/x-www-form-urlencoded
		add(bytes.ReplaceAll(needle, []byte(" "), []byte("+")), formCase, 0)
	}
	for _, text := range escapes(string(needle)) {
		add(text, formCase, 0)
	}
	lower := []byte(hex.EncodeToString(needle))
	add(lower, formHex, 0)
	add(bytes.ToUpper(lower), formHex, 0)
	for phase := range 3 {
		std := base64Core(base64.StdEncoding, needle, phase)
		add(std, formBase64, phase)
		if url := base64Core(base64.URLEncoding, needle, phase); !bytes.Equal(url, std) {
			add(url, formBase64URL, phase)
		}
	}
	return out
}

// escapes returns the needle as it stands in a view (see decodeUnit) whose data
// spells characters beyond ASCII by their numbers, as JSON encoders do unless
// told otherwise: those below 256 are one byte there, the others are left as
// they were written. A needle of ASCII alone has none.
func escapes(needle string) [][]byte {
	if !utf8.ValidString(needle) || strings.IndexFunc(needle, func(r rune) bool { return r > unicode.MaxASCII }) < 0 {
		return nil
	}
	var out [][]byte
	for _, format := range []string{`\u%04x`, `\u%04X`, "&#%d;", "&#x%x;", "&#x%X;"} {
		units := []rune(needle)
		if format[0] == '\\' { // JSON counts in UTF-16
			units = units[:0]
			for _, u := range utf16.Encode([]rune(needle)) {
				units = append(units, rune(u))
			}
		}
		var text []byte
		for _, u := range units {
			if u <= unicode.MaxLatin1 {
				text = append(text, byte(u))
				continue
			}
			text = fmt.Appendf(text, format, u)
		}
		out = append(out, text)
	}
	return out
}

// base64Core returns the characters that are the needle's alone when it stands
// behind phase other bytes of a three-byte group: characters that share bits
// with a neighbour are left out.
func base64Core(enc *base64.Encoding, needle []byte, phase int) []byte {
	padded := append(make([]byte, phase, phase+len(needle)), needle...)
	all := make([]byte, enc.EncodedLen(len(padded)))
	enc.Encode(all, padded)
	return all[(phase*8+5)/6 : len(padded)*8/6]
}

// recode returns replacement in the form of the hit, for the characters from
// the hit's first to its last, shared base64 characters included.
func recode(h *Hit, replacement []byte) []byte {
	switch h.pattern.form {
	case formRaw, formCase:
		return bytes.Clone(replacement)
	case formHex:
		return []byte(hex.EncodeToString(replacement))
	case formBase64, formBase64URL:
	}
	return recodeBase64(h, replacement)
}

const (
	alphabetStd = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	alphabetURL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	// filler lengthens a replacement so that what follows keeps its alignment.
	filler = '.'
)

// recodeBase64 writes replacement so that the text around it decodes as before.
// Unless the base64 text ends here, filler makes its length equal to the
// needle's modulo three.
func recodeBase64(h *Hit, replacement []byte) []byte {
	alphabet := alphabetStd
	if h.pattern.form == formBase64URL {
		alphabet = alphabetURL
	}
	content := bytes.Clone(replacement)
	for !h.ends && len(content)%3 != h.length%3 {
		content = append(content, filler)
	}
	acc, bits := uint32(0), h.leadBits()
	if value, ok := sextet(h.before); ok && bits > 0 {
		acc = uint32(value) >> (6 - bits)
	}
	var out []byte
	for _, c := range content {
		acc, bits = acc<<8|uint32(c), bits+8
		for bits >= 6 {
			bits -= 6
			out = append(out, alphabet[acc>>bits&63])
		}
		acc &= 1<<bits - 1
	}
	if bits > 0 {
		low := uint32(0)
		if value, ok := sextet(h.after); ok && !h.ends {
			low = uint32(value) & (1<<(6-bits) - 1)
		}
		out = append(out, alphabet[(acc<<(6-bits)|low)&63])
	}
	if h.leadBits() > 0 && h.before == 0 {
		out = out[1:] // the shared character isn't part of the hit
	}
	return out
}

// sextet is the value of a base64 character of either alphabet.
func sextet(c byte) (byte, bool) {
	switch {
	case c >= 'A' && c <= 'Z':
		return c - 'A', true
	case c >= 'a' && c <= 'z':
		return c - 'a' + 26, true
	case c >= '0' && c <= '9':
		return c - '0' + 52, true
	case c == '+' || c == '-':
		return 62, true
	case c == '/' || c == '_':
		return 63, true
	}
	return 0, false
}
