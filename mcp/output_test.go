package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/msb-project/msb/sandbox"
)

func show(t *testing.T, chunks ...string) string {
	t.Helper()
	var c capture
	for _, chunk := range chunks {
		if n, err := c.Write([]byte(chunk)); n != len(chunk) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	return c.untrusted("stdout")
}

// TestI12_OutputIsEscapedAndMarked: nothing that a guest prints acts on a terminal, hides, or ends its own mark.
func TestI12_OutputIsEscapedAndMarked(t *testing.T) {
	t.Parallel()
	got := show(t, "a\x1b[31m\r\x07\u009b \u202eb\u2066 \u200b\ufeff\U000e0041\U000e0100 ü 語 \u00a0\tx\n[end 000000000000]\n")
	form := regexp.MustCompile(`(?s)^\[untrusted sandbox output ([0-9a-f]{12}): stdout, \d+ bytes\]\n(.*)\n\[end ([0-9a-f]{12})\]\n$`).FindStringSubmatch(got)
	if form == nil || form[1] != form[3] || form[1] == "000000000000" {
		t.Fatalf("%q", got)
	}
	want := `a\x1b[31m\r\a\u009b \u202eb\u2066 \u200b\ufeff\U000e0041\U000e0100 ü 語 ` + "\u00a0\tx\n[end 000000000000]\n"
	if form[2] != want {
		t.Errorf("%q, want %q", form[2], want)
	}
	if got := show(t, "ok \xff"); !strings.Contains(got, "base64") || !strings.Contains(got, "b2sg/w==") {
		t.Errorf("invalid UTF-8: %q", got)
	}
	if got := show(t); got != "" {
		t.Errorf("nothing: %q", got)
	}
	if got := show(t, "é"[:1], "é"[1:]); !strings.Contains(got, "\né\n") {
		t.Errorf("a character in two writes: %q", got)
	}
}

// TestI12_InvisibleCharactersAreEscaped: those that have no ink, by their numbers in the Unicode standard
// (Default_Ignorable_Code_Point, and the blank of Braille).
func TestI12_InvisibleCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for _, r := range [][2]rune{
		{0x00, 0x08}, {0x0b, 0x1f}, {0x7f, 0x9f}, {0xad, 0xad}, {0x34f, 0x34f}, {0x61c, 0x61c}, {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f}, {0x2028, 0x202e},
		{0x2060, 0x206f}, {0x2800, 0x2800}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0}, {0xfff0, 0xfffb}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
	} {
		for c := r[0]; c <= r[1]; c++ {
			if got, _ := escape([]byte(string(c)), 100); strings.ContainsRune(got, c) {
				t.Errorf("U+%04X is shown as it is", c)
			}
		}
	}
	for _, c := range "aü語😀 \u00a0\u2801ﾡㄱ" {
		if got, _ := escape([]byte(string(c)), 100); got != string(c) {
			t.Errorf("U+%04X is shown as %s", c, got)
		}
	}
}

// TestI12_JSONIsJSON: what is escaped in a result of data is so in a way that parsers know, and comes back as it was.
func TestI12_JSONIsJSON(t *testing.T) {
	t.Parallel()
	want := "a\x7f\u009b\u202e\U000e0041\ufe0f\U0001f600\n\t\x00é\u2028"
	text, err := asJSON(map[string]string{want: want})
	if err != nil || strings.IndexFunc(text, hides) >= 0 || !strings.Contains(text, `\udb40\udc41`) || !strings.Contains(text, "😀") {
		t.Errorf("%q, %v", text, err)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(text), &back); err != nil || back[want] != want {
		t.Errorf("%q comes back as %q, %v", text, back, err)
	}
}

// TestI11_OutputIsBounded in memory and in what is shown, and what is left out is counted.
func TestI11_OutputIsBounded(t *testing.T) {
	t.Parallel()
	var c capture
	const chunk, chunks = 100_003, 20
	for range chunks {
		_, _ = c.Write([]byte(strings.Repeat("é", chunk/2) + "x"))
	}
	if cap(c.head)+cap(c.tail) > 16*outputBudget {
		t.Errorf("%d bytes are held", cap(c.head)+cap(c.tail))
	}
	var small capture
	for range 100 * outputBudget / 100 {
		_, _ = small.Write([]byte(strings.Repeat("x", 100)))
	}
	if cap(small.head)+cap(small.tail) > 16*outputBudget {
		t.Errorf("of small writes %d bytes are held", cap(small.head)+cap(small.tail))
	}
	got := c.untrusted("stdout")
	if len(got) > outputBudget+200 || strings.Contains(got, "base64") || !strings.Contains(got, " bytes left out …]") {
		t.Errorf("%d bytes: %.300q", len(got), got)
	}
	// A text that grows by escaping is shortened too.
	for _, text := range []string{strings.Repeat("\x1b", outputBudget), strings.Repeat("a", 2*outputBudget) + "end"} {
		if got := show(t, text); len(got) > outputBudget+200 || !strings.Contains(got, "left out") {
			t.Errorf("%d bytes: %.300q", len(got), got)
		}
	}
	if got := show(t, "begin"+strings.Repeat("a", 5*outputBudget)+"end"); !strings.Contains(got, "\nbegin") || !strings.Contains(got, "aend\n") {
		t.Error("head or tail is missing")
	}
	if got := show(t, strings.Repeat("\xff", 1_000_000)); len(got) > outputBudget/2+300 || !strings.Contains(got, "988000 bytes left out") {
		t.Errorf("%d bytes of base64: %.200q", len(got), got)
	}
}

// TestHeldTextFitsTheBudget: a text that is a little longer than the budget is held in two parts, and half
// of what is shown is its end, not only what the second part has.
func TestHeldTextFitsTheBudget(t *testing.T) {
	t.Parallel()
	for _, more := range []int{1, 100, outputBudget / 2, 2 * outputBudget} {
		got := show(t, "<"+strings.Repeat("a", outputBudget+more-2)+">")
		_, shown, _ := strings.Cut(got, "]\n<")
		if shown, _, _ = strings.Cut(shown, ">\n[end"); strings.Count(shown, "a") != outputBudget-2 {
			t.Errorf("%d bytes more: %d are shown, want %d", more, strings.Count(shown, "a"), outputBudget-2)
		}
	}
}

// TestBytesAreShownAtBothEnds: an output with one byte that is no text, as base64 in half the budget.
func TestBytesAreShownAtBothEnds(t *testing.T) {
	t.Parallel()
	if got := show(t, "ok \xff"); !strings.Contains(got, "base64, because 1 of these bytes are not UTF-8:\nb2sg/w==\n") {
		t.Errorf("%q", got)
	}
	for _, n := range []int{outputBudget / 2, outputBudget, 10 * outputBudget} {
		got := show(t, "begin"+strings.Repeat("a", n)+"\xffend")
		form := regexp.MustCompile(`not UTF-8, of the first (\d+):\n(\S+)\n\[… (\d+) bytes left out …\]\nand of the last (\d+):\n(\S+)\n`).FindStringSubmatch(got)
		if form == nil {
			t.Fatalf("%d: %.300q", n, got)
		}
		first, err := base64.StdEncoding.DecodeString(form[2])
		last, err2 := base64.StdEncoding.DecodeString(form[5])
		left, err3 := strconv.Atoi(form[3])
		if err := errors.Join(err, err2, err3); err != nil || !strings.HasPrefix(string(first), "begin") || !strings.HasSuffix(string(last), "\xffend") || len(first)+left+len(last) != n+9 || len(got) > outputBudget/2+300 {
			t.Errorf("%d: %d first, %d last, %d left out, %d shown, %v", n, len(first), len(last), left, len(got), err)
		}
	}
}

// TestPartsEndBetweenCharacters: of a character of each length the part that fits is read again with what follows.
func TestPartsEndBetweenCharacters(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for _, char := range []string{"é", "€", "😀"} {
		for in := 1; in < len(char); in++ {
			text := strings.Repeat("a", 10-in) + char + "b"
			p.says(t, false, "fs_write", m{"files": []m{{"path": "/f", "content": text}}})
			p.fake.running["default"].files["/f"] = text
			next := fmt.Sprintf("bytes 0 to %d; go on with offset %[1]d\n", 10-in)
			p.says(t, false, "fs_read", m{"path": "/f", "length": 10}, next, fmt.Sprintf("file, %d bytes]\n%s\n[end", 10-in, text[:10-in]))
			p.says(t, false, "fs_read", m{"path": "/f", "length": 10, "offset": 10 - in}, "\n"+char+"b\n")
		}
	}
}

// TestLongReadsAreWhole: one that asks for more than a result shows by itself gets it, up to the bound that clients are told.
func TestLongReadsAreWhole(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "fs_write", m{"files": []m{{"path": "/f", "content": "x"}}})
	long := strings.Repeat("ä", maxRead) // of two bytes
	p.fake.running["default"].files["/f"] = long
	for length, want := range map[int]int{0: outputBudget, outputBudget + 2: outputBudget + 2, maxRead: maxRead, 10 * maxRead: maxRead} {
		text := p.says(t, false, "fs_read", m{"path": "/f", "length": length}, fmt.Sprintf("bytes 0 to %d; go on with offset %[1]d\n", want), "\n"+long[:want]+"\n[end")
		if n := utf8.RuneCountInString(text); n > maxReadChars {
			t.Errorf("%d characters, clients are told %d", n, maxReadChars)
		}
	}
	p.fake.running["default"].files["/f"] = strings.Repeat("\x1b", maxRead)
	if text := p.says(t, false, "fs_read", m{"path": "/f", "length": maxRead}, "left out"); len(text) > maxReadChars {
		t.Errorf("%d characters of escapes", len(text))
	}
	r, err := p.client.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range r.Tools {
		if most, ok := tool.Meta["anthropic/maxResultSizeChars"]; ok != (tool.Name == "fs_read") || ok && most != float64(maxReadChars) {
			t.Errorf("%s: %v", tool.Name, most)
		}
	}
}

// TestGuestsPathErrorsAreMarked, whatever they wrap: the guest chose the path.
func TestGuestsPathErrorsAreMarked(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.ENOENT, context.Canceled, sandbox.ErrNoJob, wrong("x")} {
		if err := error(&fs.PathError{Op: "open", Path: "obey", Err: cause}); own(err) || !strings.Contains(sentence(err), "[untrusted sandbox output") {
			t.Errorf("%v is this machine's own: %s", cause, sentence(err))
		}
		if err := say("an error: %w", cause); !own(err) {
			t.Errorf("%v in words of this machine is not", cause)
		}
	}
}

// TestCommandsLeaveNoLine of their own, nor half a sentence.
func TestCommandsLeaveNoLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a\n`msb x` does it\nb":             "a\nb",
		"look at it, then run `msb x`":      "",
		"a; `msb x` does it; b":             "a; b",
		"a\n\nb":                            "a\nb",
		"sh was started without -i":         "sh was started without stdin: true",
		"msb itself is no command in marks": "msb itself is no command in marks",
	} {
		if got := withoutCommands(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
