//go:build !linux

package sandbox

import "fmt"

func hidePatterns(patterns []string) ([]string, error) { return patterns, nil }

func (s *supervisor) shareDirectories() error {
	if len(s.plan.Directories) > 0 {
		return fmt.Errorf("%w: this system can't", ErrDirectory)
	}
	return nil
}

func hides([]string, string) bool { return false }
