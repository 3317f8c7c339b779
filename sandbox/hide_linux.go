package sandbox

import (
	"fmt"
	"os"

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

// hider reports whether patterns hide the file at a path from a directory's top.
func hider(patterns []string) func(file string) bool { return hostdir.NewHiding(patterns).Hides }

// openDirectory opens a directory by a path that has no links in it.
func openDirectory(path string) (*os.Root, error) { return hostdir.OpenRoot(path) }
