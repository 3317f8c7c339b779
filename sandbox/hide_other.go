//go:build !linux

package sandbox

import (
	"errors"
	"os"
)

func hidePatterns(patterns []string) ([]string, error) { return patterns, nil }

func hider([]string) func(string) bool { return func(string) bool { return false } }

func openDirectory(string) (*os.Root, error) { return nil, errors.ErrUnsupported }
