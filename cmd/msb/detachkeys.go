package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// defaultDetachKeys are docker's.
const defaultDetachKeys = "ctrl-p,ctrl-q"

const (
	detachKeysHelp = "leave the command running when the terminal sends these `keys`, such as ctrl-p,ctrl-q or ctrl-] (default ctrl-p,ctrl-q)"
	// maxDetachKeys bounds how much of what was typed is held back.
	maxDetachKeys = 16
)

// errDetached is the error of a keyboard on which the detach keys were typed.
var errDetached = sandbox.ErrDetach

// parseDetachKeys reads keys as docker does: single characters, ctrl-a to ctrl-z, ctrl-@, ctrl-[, ctrl-\, ctrl-], ctrl-^,
// ctrl-_ and DEL, with commas between them. "" is docker's own.
func parseDetachKeys(text string) ([]byte, error) {
	if text == "" {
		text = defaultDetachKeys
	}
	words := strings.Split(text, ",")
	keys := make([]byte, 0, len(words))
	for _, word := range words {
		control, ctrl := strings.CutPrefix(strings.ToLower(word), "ctrl-")
		switch {
		case ctrl && len(control) == 1 && control[0] >= 'a' && control[0] <= 'z':
			keys = append(keys, control[0]-'a'+1)
		case ctrl && len(control) == 1 && strings.Contains(`[\]^_`, control):
			keys = append(keys, control[0]-'@')
		case ctrl && control == "@":
			keys = append(keys, 0)
		case word == "DEL":
			keys = append(keys, 127)
		case len(word) == 1 && word[0] > ' ' && word[0] < 127:
			keys = append(keys, word[0])
		default:
			return nil, fmt.Errorf("--detach-keys %q: %q is no key; write single characters and ctrl-a to ctrl-z with commas between them, such as ctrl-p,ctrl-q", text, word)
		}
	}
	if len(keys) > maxDetachKeys {
		return nil, fmt.Errorf("--detach-keys: %d keys, at most %d may be; write fewer, such as ctrl-p,ctrl-q", len(keys), maxDetachKeys)
	}
	return keys, nil
}

// keyboard reads the user's keys until the detach keys are typed, when Read returns errDetached. It holds back a prefix of
// the detach keys until the next key decides.
type keyboard struct {
	from    io.Reader
	keys    []byte
	matched int
	ready   []byte
	err     error
}

// Read implements io.Reader.
func (k *keyboard) Read(p []byte) (int, error) {
	for len(k.ready) == 0 && k.err == nil {
		buf := make([]byte, max(len(p), 1))
		n, err := k.from.Read(buf)
		k.err = err
		for _, b := range buf[:n] {
			if k.take(b) {
				k.err = errDetached
				break
			}
		}
		if k.err != nil && !errors.Is(k.err, errDetached) { // what was held back was typed all the same
			k.ready = append(k.ready, k.keys[:k.matched]...)
		}
	}
	n := copy(p, k.ready)
	k.ready = k.ready[n:]
	if n > 0 {
		return n, nil
	}
	return 0, k.err
}

// take adds a key, and reports whether it is the last of the detach keys.
func (k *keyboard) take(b byte) bool {
	held := append(k.keys[:k.matched:k.matched], b)
	// The longest end of what was typed that the keys begin with.
	for k.matched = min(len(held), len(k.keys)); string(held[len(held)-k.matched:]) != string(k.keys[:k.matched]); k.matched-- {
	}
	k.ready = append(k.ready, held[:len(held)-k.matched]...)
	return k.matched == len(k.keys)
}
