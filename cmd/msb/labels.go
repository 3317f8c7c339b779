package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/msb-project/msb/sandbox"
)

// parseLabels reads the values of --label; the last of a key counts.
func parseLabels(values []string) (map[string]string, error) {
	if len(values) == 0 {
		return nil, nil
	}
	labels := make(map[string]string, len(values))
	for _, v := range values {
		key, value, _ := strings.Cut(v, "=")
		if key == "" {
			return nil, errors.New("--label: it has no key; write --label KEY=VALUE, such as --label team=web")
		}
		labels[key] = value
	}
	return labels, nil
}

// matchFilters reports whether a sandbox has all the labels of --filter label=KEY or label=KEY=VALUE.
func matchFilters(s *sandbox.Status, filters []string) bool {
	for _, f := range filters {
		key, want, valued := strings.Cut(strings.TrimPrefix(f, filterLabel), "=")
		got, ok := s.Labels[key]
		if !ok || valued && got != want {
			return false
		}
	}
	return true
}

const filterLabel = "label="

// checkFilters refuses filters that nothing is known of.
func checkFilters(filters []string) error {
	for _, f := range filters {
		if rest, ok := strings.CutPrefix(f, filterLabel); !ok || rest == "" || rest[0] == '=' {
			return &usageError{err: fmt.Errorf("--filter %q: write label=KEY or label=KEY=VALUE, such as --filter label=team=web", f), help: "msb ls --help"}
		}
	}
	return nil
}
