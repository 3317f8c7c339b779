package mask

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// TestI8_WhatIsHeldBackTellsNothingOfTheValue: a server and a guest that try beginnings of a value against the
// masker see the same bytes at the same time, whatever the value is.
func TestI8_WhatIsHeldBackTellsNothingOfTheValue(t *testing.T) {
	t.Parallel()
	const a, b = "ghp_R4nd0mV4lueOfTheSandbox", "ghp_Zq8Another0neOfTheSameK"
	streams := func(live bool) (out []*Stream) {
		for _, value := range []string{a, b} {
			out = append(out, NewAnswerStream(Compile([][]byte{[]byte(value)}, Options{}), ReplaceBy([][]byte{[]byte("PLACEHOLDER")}), live))
		}
		return out
	}
	tells := 0 // how often the old way of holding back would have told them apart
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(3, seed))
		live := r.IntN(2) == 0
		both := streams(live)
		told := NewStream(both[0].set, both[0].replace, live)
		other := NewStream(both[1].set, both[1].replace, live)
		for range 30 {
			value := []string{a, b}[r.IntN(2)]
			piece := []string{" ", "\n", "data: ", "\"", "%67", "\\u0067", "Z2hwX1"}[r.IntN(7)] + value[:r.IntN(len(value)-1)]
			got := make([]string, 2)
			for i, s := range both {
				out, err := s.Push(nil, []byte(piece), false)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = string(out)
			}
			if got[0] != got[1] {
				t.Fatalf("seed %d: after %q one shows %q and the other %q", seed, piece, got[0], got[1])
			}
			x, _ := told.Push(nil, []byte(piece), false)
			y, _ := other.Push(nil, []byte(piece), false)
			if !bytes.Equal(x, y) {
				tells++
			}
		}
	}
	if tells == 0 {
		t.Error("these pieces tell nothing in any way: the test shows nothing")
	}
}

func TestTokensAreHeldBackByTheirShape(t *testing.T) {
	t.Parallel()
	set := Compile([][]byte{[]byte("a-value-of-some-kind")}, Options{})
	line := strings.Repeat("QUJD", 16)
	for _, tt := range []struct {
		data       string
		held, live int
	}{
		{"", 0, 0},
		{"data: {\"x\":1}\n\n", 0, 0}, // an event of an API
		{"data: hello\n\n", 0, 0},
		{"hello wor", 3, 0},
		{"hello world", 5, 5},
		{"x " + line + "\r\n" + line + "\n", 2*len(line) + 3, 2*len(line) + 3}, // wrapped base64
		{"{\"token\":\"abc\\u00", 7, 7},
		{strings.Repeat("a", 3*maxTail), maxTail, maxTail},
	} {
		for live, want := range map[bool]int{false: tt.held, true: tt.live} {
			if got := len(tt.data) - set.tokenTail([]byte(tt.data), live); got != want {
				t.Errorf("%.40q, live %v: %d bytes are held back, want %d", tt.data, live, got, want)
			}
		}
	}
	odd := Compile([][]byte{[]byte(`{"a": "b c"}`)}, Options{})
	if got := odd.tokenTail([]byte(`x{"a": `), true); got != 0 {
		t.Errorf("a value with brackets and spaces: held from %d", got)
	}
}

// TestASilentServerStallsNoConversation: what is held back goes out after a while, and what follows of the
// value is replaced all the same.
func TestASilentServerStallsNoConversation(t *testing.T) {
	t.Parallel()
	const value = "ghp_R4nd0mV4lueOfTheSandbox"
	set := Compile([][]byte{[]byte(value)}, Options{})
	source, sink := io.Pipe()
	r := NewReader(source, NewAnswerStream(set, ReplaceBy([][]byte{[]byte("PLACEHOLDER")}), true))
	r.quiet = 20 * time.Millisecond
	begun, seen := "see "+value[:20], make(chan struct{})
	go func() {
		_, _ = io.WriteString(sink, begun)
		<-seen // it is silent until all of that went out
		_, _ = io.WriteString(sink, value[20:]+" and "+value)
		_ = sink.Close()
	}()
	all := make([]byte, len(begun))
	if _, err := io.ReadFull(r, all); err != nil {
		t.Fatal(err)
	}
	close(seen)
	rest, err := io.ReadAll(iotest.OneByteReader(r))
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, rest...)
	if want := "see " + value[:20] + "PLACEHOLDER and PLACEHOLDER"; string(all) != want {
		t.Errorf("got %q, want %q", all, want)
	}
	// A server that breaks off gives nothing of what was held.
	source, sink = io.Pipe()
	r = NewReader(source, NewAnswerStream(set, ReplaceBy([][]byte{[]byte("PLACEHOLDER")}), true))
	broken := errors.New("reset")
	go func() {
		_, _ = io.WriteString(sink, "see "+value[:20])
		_ = sink.CloseWithError(broken)
	}()
	if all, err := io.ReadAll(r); !errors.Is(err, broken) || string(all) != "see " {
		t.Errorf("got %q and %v of an answer that broke off", all, err)
	}
}
