package mcp

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	// outputBudget is how much of a guest's output one result shows, in bytes: 8,000 tokens of 4 bytes. Claude Code warns
	// at 10,000 tokens.
	outputBudget = 32_000
	// stderrBudget is the most that standard error takes of it.
	stderrBudget = 8_000
	// maxRead is the most that an fs_read with a length shows of a file, in bytes.
	maxRead = 3 * outputBudget
	// maxReadChars is the size of results that fs_read announces to clients: maxRead and the text around it. Claude Code
	// cuts results of more than 25,000 tokens, unless the tool announces a size.
	maxReadChars = maxRead + 1_000
)

// capture keeps the head and the tail of a stream in bounded memory. Its zero value is ready.
type capture struct {
	mu         sync.Mutex
	head, tail []byte
	total      int64
	rest       *spool // keeps everything after head; nil keeps only head and tail
}

// Write implements io.Writer. It never fails, so that a guest that prints without end is read to its end.
func (c *capture) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(b)
	c.total += int64(n)
	take := min(outputBudget-len(c.head), len(b))
	c.head, b = append(c.head, b[:take]...), b[take:]
	c.rest.write(b)
	if len(b) > outputBudget {
		b, c.tail = b[len(b)-outputBudget:], c.tail[:0]
	}
	c.tail = append(c.tail, b...)
	if len(c.tail) > 2*outputBudget {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-outputBudget:]...)
	}
	return n, nil
}

// untrusted is the captured output, cut to what one result shows.
func (c *capture) untrusted(what string) string {
	text, _ := c.shown(what, outputBudget)
	return text
}

// shown is the captured output, escaped, at most about budget bytes of it, between marks that the guest can't foresee. It
// reports whether it is complete.
func (c *capture) shown(what string, budget int) (text string, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.total == 0 {
		return "", true
	}
	head, tail := c.head, c.tail
	if c.total == int64(len(c.head)+len(c.tail)) { // head and tail are contiguous
		head, tail = append(c.head[:len(c.head):len(c.head)], c.tail...), nil
	}
	text, all = shorten(head, tail, c.total, budget)
	return mark(what, c.total, text), all
}

// shorten shows head and tail of a text of total bytes. tail is nil if head is all of it.
func shorten(head, tail []byte, total int64, budget int) (text string, all bool) {
	if !isText(head, tail == nil) || tail != nil && !isText(trimStart(tail), true) {
		return shortenBytes(head, tail, total, budget/2)
	}
	if tail == nil {
		if text, n := escape(head, budget); n == len(head) {
			return text, true
		}
		tail = head
	}
	first, n := escape(head, budget/2)
	last, m := escapeEnd(tail, budget/2)
	return first + "\n[… " + strconv.FormatInt(total-int64(n)-int64(m), 10) + " bytes left out …]\n" + last, false
}

// shortenBytes is shorten for binary data, shown as base64, of which a token has fewer characters than of text.
func shortenBytes(head, tail []byte, total int64, budget int) (text string, all bool) {
	bad := strconv.Itoa(notUTF8(head) + notUTF8(tail))
	if tail != nil {
		bad = "at least " + bad
	}
	why := "base64, because " + bad + " of these bytes are not UTF-8"
	if tail == nil && base64.StdEncoding.EncodedLen(len(head)) <= budget {
		return why + ":\n" + base64.StdEncoding.EncodeToString(head), true
	}
	if tail == nil {
		tail = head
	}
	part := budget / 2 / 4 * 3
	first, last := head[:min(len(head), part)], tail[max(0, len(tail)-part):]
	return fmt.Sprintf("%s, of the first %d:\n%s\n[… %d bytes left out …]\nand of the last %d:\n%s", why, len(first), base64.StdEncoding.EncodeToString(first),
		total-int64(len(first)+len(last)), len(last), base64.StdEncoding.EncodeToString(last)), false
}

// notUTF8 counts the bytes that belong to no character.
func notUTF8(b []byte) (n int) {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			n++
		}
		b = b[size:]
	}
	return n
}

// isText reports whether b is UTF-8. If more follows elsewhere, the last character may be cut.
func isText(b []byte, whole bool) bool {
	if !whole {
		b = trimEnd(b)
	}
	return utf8.Valid(b)
}

// trimEnd drops an incomplete character from the end.
func trimEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if last := b[len(b)-i:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// cut drops an incomplete character from the end of an output of which more follows elsewhere, and returns the number of
// its bytes.
func (c *capture) cut() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.head)
	c.head = trimEnd(c.head)
	c.total -= int64(n - len(c.head))
	return int64(n - len(c.head))
}

// trimStart drops an incomplete character from the beginning.
func trimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
		b = b[1:]
	}
	return b
}

// escape escapes b until budget bytes are reached, and returns how many bytes of b it used.
func escape(b []byte, budget int) (string, int) {
	var s strings.Builder
	n := 0
	for n < len(b) {
		r, size := utf8.DecodeRune(b[n:])
		shown := visible(r, b[n:n+size])
		if s.Len()+len(shown) > budget {
			break
		}
		s.WriteString(shown)
		n += size
	}
	return s.String(), n
}

// escapeEnd is escape from the end.
func escapeEnd(b []byte, budget int) (string, int) {
	n, left := 0, budget
	for n < len(b) {
		r, size := utf8.DecodeLastRune(b[:len(b)-n])
		left -= len(visible(r, b[len(b)-n-size:len(b)-n]))
		if left < 0 {
			break
		}
		n += size
	}
	text, _ := escape(b[len(b)-n:], budget)
	return text, n
}

// visible is a character as it is, or as a Go escape if it would act on a terminal (control characters), change the
// direction of text, or be invisible (format characters, tags, variation selectors, fillers, the blank of Braille).
func visible(r rune, raw []byte) string {
	switch {
	case r == utf8.RuneError && len(raw) < 2:
		return fmt.Sprintf(`\x%02x`, raw)
	case r == '\n' || r == '\t' || unicode.Is(unicode.Zs, r):
		return string(raw)
	case !unicode.IsPrint(r), unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point), r == 0x2800:
		quoted := strconv.QuoteRuneToASCII(r)
		return quoted[1 : len(quoted)-1]
	}
	return string(raw)
}

// markBegin begins the mark before a guest's text.
const markBegin = "[untrusted sandbox output "

// mark encloses a guest's text.
func mark(what string, total int64, text string) string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	id := hex.EncodeToString(b[:])
	return fmt.Sprintf("%s%s: %s, %d bytes]\n%s\n[end %s]\n", markBegin, id, what, total, text, id)
}

// printed escapes text that a guest or a client chose, as one line for use in a sentence.
func printed(s string) string {
	text, n := escape([]byte(s), 200)
	if n < len(s) {
		text += "…"
	}
	return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text)
}
