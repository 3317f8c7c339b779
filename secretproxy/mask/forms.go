package mask

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// form is how a replacement is written in the place of a pattern.
type form uint8

const (
	formRaw       form = iota
	formCase           // plainly: the needle in another case, or base32 and the like
	formHex            // lower or upper case
	formBase64         // alphabet with + and /
	formBase64URL      // alphabet with - and _
	formDecimal        // numbers of bytes
)

// minPattern is the shortest pattern in bytes. Base64 of a very short needle at
// an odd alignment has fewer characters of its own; such a pattern would be
// found by chance.
const minPattern = 6

// speller is a spelling that depends on more than one character of the needle.
// What it makes of a needle's beginning is the beginning of what it makes of the
// needle.
type speller struct {
	form  form
	phase int
	text  func(needle []byte) []byte
}

// spellers has one for each form and alignment. Base32 and what is encoded twice
// get their replacement as plain text: nobody decodes them unseen.
var spellers = func() (all []*speller) {
	add := func(f form, phase int, text func([]byte) []byte) {
		all = append(all, &speller{f, phase, text})
	}
	toHex := func(b []byte) []byte { return []byte(hex.EncodeToString(b)) }
	add(formHex, 0, toHex)
	add(formHex, 0, func(b []byte) []byte { return bytes.ToUpper(toHex(b)) })
	for phase := range 3 {
		for enc, f := range map[*base64.Encoding]form{base64.StdEncoding: formBase64, base64.URLEncoding: formBase64URL} {
			encode := func(b []byte) []byte { return base64Core(enc, b, phase) }
			add(f, phase, encode)
			for second := range 3 {
				add(formCase, 0, func(b []byte) []byte { return base64Core(enc, encode(b), second) })
			}
		}
		for _, big := range []bool{false, true} {
			add(formCase, 0, func(b []byte) []byte { return base64Core(base64.StdEncoding, toUTF16(b, big), phase) })
		}
	}
	for phase := range 5 {
		encode := func(b []byte) []byte { return base32Core(b, phase) }
		add(formCase, 0, encode)
		add(formCase, 0, func(b []byte) []byte { return bytes.ToLower(encode(b)) })
	}
	for i, separator := range separators {
		add(formDecimal, i, func(b []byte) []byte { return decimals(b, separator) })
	}
	return all
}()

// spellings returns the patterns of one needle.
func spellings(n int, needle []byte) []pattern {
	var out []pattern
	plain := func(text []byte, f form) {
		if len(text) >= minPattern {
			out = append(out, pattern{head: text[:min(len(text), headSize)], size: len(text), source: text, spell: itself, needle: n, form: f})
		}
	}
	for i, text := range variants(needle) {
		f := formCase
		if i == 0 {
			f = formRaw
		}
		plain(text, f)
		if short := collapsed(text); len(short) < len(text) {
			plain(short, formCase)
		}
	}
	for _, s := range spellers {
		// Of a needle beyond ASCII, what a beginning's last character turns to
		// depends on the rest of it.
		begin := needle
		if len(begin) > headSize && !beyondASCII(begin) {
			begin = begin[:headSize]
		}
		head := s.text(begin)
		size := len(head)
		if len(begin) < len(needle) {
			size = len(s.text(needle))
		}
		if size >= minPattern {
			head = head[:min(len(head), headSize)]
			out = append(out, pattern{head: head, size: size, source: needle, spell: s, needle: n, form: s.form, phase: s.phase})
		}
	}
	return out
}

// itself spells patterns that are kept as they are.
var itself = &speller{text: func(b []byte) []byte { return b }}

// variants returns the needle and what else it may be in a view: in another
// case, as a form writes blanks, in UTF-16 without its zeros; each of them with
// its own line breaks undone, and its own escapes as often as a text's are; and without
// blanks in front, which a line break can make an indent.
func variants(needle []byte) [][]byte {
	all := [][]byte{needle, bytes.ToLower(needle), bytes.ToUpper(needle)}
	if bytes.IndexByte(needle, ' ') >= 0 {
		for _, text := range all[:3] {
			all = append(all, bytes.ReplaceAll(text, []byte(" "), []byte("+")))
		}
	}
	if beyondASCII(needle) {
		for _, big := range []bool{false, true} {
			all = append(all, bytes.ReplaceAll(toUTF16(needle, big), []byte{0}, nil))
		}
	}
	for _, text := range all {
		var breaks view
		if breaks.build(lensBreaks, text, len(text)) {
			all = append(all, breaks.text)
		}
		for range maxDepth {
			var v view
			if !v.build(lensAll, text, len(text)) {
				break
			}
			text = v.text
			all = append(all, text)
		}
	}
	for _, text := range all {
		if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) < len(text) {
			all = append(all, trimmed) // behind a line break they are an indent
		}
	}
	return all
}

func beyondASCII(b []byte) bool {
	return bytes.IndexFunc(b, func(r rune) bool { return r > unicode.MaxASCII }) >= 0
}

// minPart is the length from which a run of base64 within a needle is a needle
// by itself.
const minPart = 32

// parts returns the runs of base64 of a needle that holds blanks or brackets,
// such as a key in PEM: a live stream shows it piece by piece, and services show
// its lines.
func parts(needle []byte) [][]byte {
	if bytes.IndexFunc(needle, func(r rune) bool { return r < 0x80 && classes[byte(r)] != classToken }) < 0 {
		return nil
	}
	var out [][]byte
	// In JSON, as service accounts have it, the lines end with \n.
	texts := [][]byte{needle, bytes.ReplaceAll(needle, []byte(`\n`), []byte("\n"))}
	for text := needle; len(texts) < 2+maxDepth; {
		var v view
		if !v.build(lensAll, text, len(text)) {
			break
		}
		text = v.text
		texts = append(texts, text)
	}
	for _, text := range texts {
		for _, alphabet := range []string{alphabetStd, alphabetURL} {
			for _, run := range bytes.FieldsFunc(text, func(r rune) bool { return r >= 0x80 || bytes.IndexByte([]byte(alphabet), byte(r)) < 0 }) {
				if len(run) >= minPart {
					out = append(out, run)
				}
			}
		}
	}
	return out
}

// toUTF16 returns UTF-8 text in UTF-16; other bytes as if each were a character.
func toUTF16(text []byte, big bool) []byte {
	var units []uint16
	if utf8.Valid(text) {
		units = utf16.Encode([]rune(string(text)))
	} else {
		for _, c := range text {
			units = append(units, uint16(c))
		}
	}
	out := make([]byte, 0, 2*len(units))
	for _, u := range units {
		if big {
			out = append(out, byte(u>>8), byte(u))
		} else {
			out = append(out, byte(u), byte(u>>8))
		}
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
	return all[min(len(all), (phase*8+5)/6) : len(padded)*8/6]
}

// base32Core is the same for groups of five bytes.
func base32Core(needle []byte, phase int) []byte {
	padded := append(make([]byte, phase, phase+len(needle)), needle...)
	all := make([]byte, base32.StdEncoding.EncodedLen(len(padded)))
	base32.StdEncoding.Encode(all, padded)
	return all[(phase*8+4)/5 : len(padded)*8/5]
}

// separators of arrays of bytes: JSON, its pretty form, Go's %v, and those with
// blanks as forms have them.
var separators = [...]string{",", ", ", " ", ",+", "+"}

// decimals writes the numbers of bytes.
func decimals(b []byte, separator string) []byte {
	var out []byte
	for i, c := range b {
		if i > 0 {
			out = append(out, separator...)
		}
		out = strconv.AppendUint(out, uint64(c), 10)
	}
	return out
}
