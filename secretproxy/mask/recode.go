package mask

import (
	"bytes"
	"encoding/hex"
)

// recode returns replacement in the form of the hit, for the characters from
// the hit's first to its last, shared base64 characters included.
func recode(h *Hit, replacement []byte) []byte {
	switch h.pattern.form {
	case formRaw, formCase:
		return bytes.Clone(replacement)
	case formHex:
		return []byte(hex.EncodeToString(replacement))
	case formDecimal:
		return decimals(replacement, separators[h.pattern.phase])
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
