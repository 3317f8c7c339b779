package secretstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/msb-project/msb/policies"
)

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

// errShape says that the shape of a placeholder can't be used.
var errShape = errors.New("unusable placeholder shape")

// placeholder makes a placeholder of that shape (policies.ParseShape), in which
// {n} stands for n random characters of [A-Za-z0-9]; "" is
// policies.DefaultPlaceholder.
func placeholder(shape string, random io.Reader) (string, error) {
	if shape == "" {
		shape = policies.DefaultPlaceholder
	}
	s, err := policies.ParseShape(shape)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errShape, err)
	}
	run, err := randomRun(s.Random, random)
	if err != nil {
		return "", err
	}
	return s.Prefix + run + s.Suffix, nil
}

// randomRun draws n characters without bias: bytes past the largest multiple
// of the alphabet's size are thrown away.
func randomRun(n int, random io.Reader) (string, error) {
	const fair = 256 - 256%len(alphabet)
	out := make([]byte, 0, n)
	var block [64]byte
	for len(out) < n {
		if _, err := io.ReadFull(random, block[:]); err != nil {
			return "", fmt.Errorf("reading randomness for a placeholder: %w", err)
		}
		for _, b := range block {
			if int(b) < fair && len(out) < n {
				out = append(out, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return string(out), nil
}

// fits reports whether placeholder could have been made of shape.
func fits(shape, placeholder string) bool {
	if shape == "" {
		shape = policies.DefaultPlaceholder
	}
	s, err := policies.ParseShape(shape)
	if err != nil {
		return false
	}
	run, ok := strings.CutPrefix(placeholder, s.Prefix)
	if ok {
		run, ok = strings.CutSuffix(run, s.Suffix)
	}
	return ok && len(run) == s.Random && strings.Trim(run, alphabet) == ""
}

// Placeholders makes one for each holder, so that no one contains another,
// whatever the case, and none contains a value or lies within one. One of kept,
// by the secret's name, is taken again where it has the secret's shape still.
func Placeholders(holders []*Holder, kept map[string]string, random io.Reader) ([]string, error) {
	const attempts = 8 // a second one is as likely as a broken random source
	out := make([]string, 0, len(holders))
	var err error
	for _, h := range holders {
		placed := false
		for try := range attempts {
			p := kept[h.policy.Name]
			if try > 0 || !fits(h.policy.Placeholder, p) {
				if p, err = placeholder(h.policy.Placeholder, random); err != nil {
					return nil, fmt.Errorf("secret %s: %w", h.policy.Name, err)
				}
			}
			if distinct(p, out) && !touchesValue(p, holders) {
				out, placed = append(out, p), true
				break
			}
		}
		if !placed {
			return nil, fmt.Errorf("secret %s: %w %q: it isn't distinct from other placeholders or values: change the text around {n}", h.policy.Name, errShape, h.policy.Placeholder)
		}
	}
	return out, nil
}

func distinct(p string, others []string) bool {
	lower := strings.ToLower(p)
	for _, other := range others {
		o := strings.ToLower(other)
		if strings.Contains(lower, o) || strings.Contains(o, lower) {
			return false
		}
	}
	return true
}

func touchesValue(p string, holders []*Holder) bool {
	for _, h := range holders {
		value := h.Value().Reveal()
		hit := bytes.Contains([]byte(p), value) || bytes.Contains(value, []byte(p))
		clear(value)
		if hit {
			return true
		}
	}
	return false
}
