//go:build !linux

package sandbox

import (
	"errors"
	"os"
)

func hidePatterns(patterns []string) ([]string, error) { return patterns, nil }

func hides([]string, string) bool { return false }

func openDirectory(string) (*os.Root, error) { return nil, errors.ErrUnsupported }
