package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDetachKeysParseAsInDocker(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "\x10\x11", "ctrl-p,ctrl-q": "\x10\x11", "ctrl-a": "\x01", "ctrl-Z": "\x1a", "ctrl-@": "\x00", "ctrl-[": "\x1b", `ctrl-\`: "\x1c", "ctrl-]": "\x1d", "ctrl-^,ctrl-_": "\x1e\x1f", "a,B,DEL": "aB\x7f",
	} {
		if got, err := parseDetachKeys(text); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{",", "ctrl-", "ctrl-1", "ctrl-pp", "ctrl", "ctrl-p,", "ab", "\u00e4", " ", "\x10", strings.Repeat("a,", 16) + "a"} {
		if got, err := parseDetachKeys(text); err == nil {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}

// TestKeyboardsEndAtTheDetachKeys, wherever reads are cut, and give everything else as it was typed.
func TestKeyboardsEndAtTheDetachKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		keys, typed, want string
		detached          bool
	}{
		{"pq", "hello", "hello", false},
		{"pq", "hellopq", "hello", true},
		{"pq", "ppq", "p", true},
		{"pq", "p", "p", false},
		{"pq", "px", "px", false},
		{"pq", "pqmore", "", true},
		{"aab", "aaab", "a", true},
		{"aab", "aacaab", "aac", true},
		{"abab", "abaabab", "aba", true},
		{"q", "xq", "x", true},
	} {
		for name, from := range map[string]io.Reader{"whole": strings.NewReader(c.typed), "bytes": iotest.OneByteReader(strings.NewReader(c.typed)), "eof": iotest.DataErrReader(strings.NewReader(c.typed))} {
			got, err := io.ReadAll(&keyboard{from: from, keys: []byte(c.keys)})
			if string(got) != c.want || errors.Is(err, errDetached) != c.detached || !c.detached && err != nil {
				t.Errorf("%s typed (%s), keys %s: %q, %v; want %q", c.typed, name, c.keys, got, err, c.want)
			}
		}
	}
}
