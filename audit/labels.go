package audit

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/msb-project/msb/internal/lazyregexp"
)

// ErrLabels is wrapped by the errors of CheckLabels.
var ErrLabels = errors.New("bad labels")

// labelKey is the form of a label's key.
var labelKey = lazyregexp.New(`^[a-z][a-z0-9_.-]{0,62}$`)

// CheckLabels says whether labels may be those of a log: at most 16, with keys such
// as "namespace" of at most 63 bytes and values of at most 512.
func CheckLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%w: %d of them; give at most %d", ErrLabels, len(labels), maxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if !labelKey.MatchString(key) {
			return fmt.Errorf("%w: the key %.80q; use up to 63 small letters, digits, and _ . -, the first one a letter", ErrLabels, key)
		}
		if n := len(labels[key]); n > maxString {
			return fmt.Errorf("%w: %s has %d bytes; give at most %d", ErrLabels, key, n, maxString)
		}
	}
	return nil
}

// withLabels returns the labels of a log with an event's own, which it doesn't change.
func withLabels(all, own map[string]string) map[string]string {
	switch {
	case len(own) == 0:
		return all
	case len(all) == 0:
		return own
	}
	all = maps.Clone(all)
	maps.Copy(all, own)
	return all
}

// cutLabels returns labels within the bounds: the first ones by key, keys and values cut.
func cutLabels(labels map[string]string) map[string]string {
	fits := len(labels) <= maxLabels
	for key, value := range labels {
		fits = fits && len(key) <= maxString && len(value) <= maxString
	}
	if fits {
		return labels
	}
	keys := slices.Sorted(maps.Keys(labels))
	within := make(map[string]string, maxLabels)
	for _, key := range keys[:min(len(keys), maxLabels)] {
		within[cut(key, maxString)] = cut(labels[key], maxString)
	}
	return within
}
