package mask

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(17, seed)) }

// TestI17_GuessesShowNothing: a guest and a server that work together hold conversations under one value and
// under another of the same length, classes and public prefix. As long as the whole value isn't sent, the
// guest sees the same bytes at the same times. MSB_ORACLE_PAIRS is the number of pairs; make test-oracle runs
// 200,000 of them.
func TestI17_GuessesShowNothing(t *testing.T) {
	t.Parallel()
	pairs, failures, skipped := 400, 0, 0
	if n, err := strconv.Atoi(os.Getenv("MSB_ORACLE_PAIRS")); err == nil {
		pairs = n
	}
	for seed := range pairs {
		var c *conversation
		var first, second string
		synctest.Test(t, func(t *testing.T) {
			if c = newConversation(newRandom(uint64(seed))); c != nil {
				first, second = c.hold(t, 0), c.hold(t, 1)
			}
		})
		if c == nil {
			skipped++ // the whole value came about by chance
		} else if first != second {
			if failures++; failures <= 3 {
				t.Errorf("pair %d, values %q:\nthe guest saw %s\n         and %s", seed, c.values, first, second)
			}
		}
	}
	t.Logf("%d pairs, %d differ; %d more were skipped", pairs-skipped, failures, skipped)
	if failures > 0 {
		t.Errorf("%d of %d pairs differ", failures, pairs)
	}
}

// conversation is what a server sends and how a guest reads it.
type conversation struct {
	values  [2]string
	sets    [2]*Set
	live    bool
	framing Framing
	pieces  []string
	pauses  []time.Duration // of the server, before each piece
	windows []int           // of the guest: how much it reads at once, in turn
	naps    []time.Duration // of the guest, before each read, in turn
	end     error
}

func newConversation(r *rand.Rand) *conversation {
	c := &conversation{live: r.IntN(4) > 0, framing: []Framing{frameNone, frameNone, frameLines, framePrefixed}[r.IntN(4)], end: io.EOF}
	c.values[0], c.values[1] = twoValues(r)
	for i, v := range c.values {
		c.sets[i] = Compile([][]byte{[]byte(v)}, Options{})
	}
	if r.IntN(6) == 0 {
		c.end = errors.New("reset")
	}
	for range 1 + r.IntN(6) {
		c.say(r, c.guess(r))
	}
	all := strings.Join(c.pieces, "")
	for _, s := range c.sets {
		if _, hit := s.Find(all); hit {
			return nil
		}
	}
	for range 3 {
		c.windows = append(c.windows, []int{1, 7, 100, 4096}[r.IntN(4)])
		c.naps = append(c.naps, []time.Duration{0, 0, 0, 300 * time.Millisecond, 2 * time.Second}[r.IntN(5)])
	}
	return c
}

// twoValues makes values that look the same from outside.
func twoValues(r *rand.Rand) (a, b string) {
	const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
	others := []string{"_", "-._~", "/+=%&", "%\\&;#", " {}\"[],\n", "\n\t \\n\"", "äß€"}[r.IntN(7)]
	prefix := []string{"", "ghp_", "sk-", `{"key": "`}[r.IntN(4)]
	a, b = prefix, prefix
	for n := 8 + r.IntN(32); len(a) < n; {
		class := []string{lower, upper, digits, lower, upper, digits, others}[r.IntN(7)]
		runes := []rune(class)
		x, y := string(runes[r.IntN(len(runes))]), string(runes[r.IntN(len(runes))])
		if class == others {
			y = x
		}
		a, b = a+x, b+y
	}
	return a, b
}

// guess is a beginning of a value, or one with a wrong character, in some spelling.
func (c *conversation) guess(r *rand.Rand) string {
	value := c.values[r.IntN(2)]
	text := value[:r.IntN(len(value)-1)]
	if r.IntN(3) == 0 {
		wrong := r.IntN(len(value))
		text = value[:wrong] + "~" + value[wrong+1:]
	}
	switch r.IntN(8) {
	case 0:
		text = url.QueryEscape(text)
	case 1:
		text = base64.StdEncoding.EncodeToString([]byte(text))
	case 2:
		text = fmt.Sprintf("%x", text)
	case 3:
		text = strconv.QuoteToASCII(text)
	case 4:
		text = percentOf(text)
	}
	if len(text) > 2 && r.IntN(3) == 0 {
		text = text[:r.IntN(len(text))]
	}
	return text
}

// say puts a guess between other text, in one piece or in many.
func (c *conversation) say(r *rand.Rand, guess string) {
	before := []string{"", " ", "data: ", "\n", "{\"t\":\"", "x", "Bearer%20", "\x00\x00\x00\x00\x0c", "0123456789", "%", "\\"}
	after := []string{"", "~", " ", "\n\n", "\n", "\"}\n", "%", "&", "==", "zzzzzzzzzz", strings.Repeat("ab12", 1200)}
	text := before[r.IntN(len(before))] + guess + after[r.IntN(len(after))]
	size := len(text)
	switch r.IntN(5) {
	case 0:
		size = 1
	case 1:
		size = 1 + r.IntN(9)
	}
	if len(text) > 1000 {
		size = len(text)
	}
	for len(text) > 0 {
		n := min(size, len(text))
		c.pieces = append(c.pieces, text[:n])
		c.pauses = append(c.pauses, []time.Duration{0, 0, 0, time.Millisecond, 900 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}[r.IntN(7)])
		text = text[n:]
	}
}

// hold lets the guest listen while value i is in force, and returns what it saw, and when.
func (c *conversation) hold(t *testing.T, i int) string {
	t.Helper()
	source, sink := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, piece := range c.pieces {
			time.Sleep(c.pauses[i])
			_, _ = io.WriteString(sink, piece)
		}
		_ = sink.CloseWithError(c.end)
	}()
	st := NewAnswerStream(c.sets[i], ReplaceBy([][]byte{[]byte("PLACEHOLDER")}), c.live).Framed(c.framing)
	bound := st.Bound()
	reader, begin := NewReader(source, st), time.Now()
	var seen strings.Builder
	for n := 0; ; n++ {
		time.Sleep(c.naps[n%len(c.naps)])
		buf := make([]byte, c.windows[n%len(c.windows)])
		got, err := reader.Read(buf)
		fmt.Fprintf(&seen, " %v:%q", time.Since(begin), buf[:got])
		if err != nil {
			<-done
			return fmt.Sprint(seen.String(), " ", err, " bound ", bound)
		}
	}
}
