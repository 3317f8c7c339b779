package sandbox

import (
	"fmt"

	"github.com/msb-project/msb/internal/hostdir"
)

// hidePatterns checks the patterns of Config.Hide.
func hidePatterns(patterns []string) ([]string, error) {
	for _, p := range patterns {
		if err := hostdir.CheckHide(p); err != nil {
			return nil, fmt.Errorf("%w: hidden: %w", ErrDirectory, err)
		}
	}
	return patterns, nil
}

// hides reports whether patterns hide the file at a path from a directory's top.
func hides(patterns []string, file string) bool { return hostdir.Hides(patterns, file) }
