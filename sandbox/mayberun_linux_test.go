package sandbox

import (
	"errors"
	"testing"
)

// A program that doesn't call MaybeRun would be started as its own supervisor, and do all over again what it does. No
// t.Parallel: the others call it.
func TestI11_ProgramsDontStartThemselvesForEver(t *testing.T) {
	defer func() { mayRun = true }()
	for _, tc := range []struct {
		called  bool
		program string
		refused bool
	}{{false, "", true}, {true, "", false}, {false, "/usr/bin/msb", false}} {
		mayRun = tc.called
		c := Config{Program: tc.program, Home: t.TempDir()}
		if err := c.fill(); errors.Is(err, ErrConfig) != tc.refused {
			t.Errorf("MaybeRun called: %v, Program %q: %v", tc.called, tc.program, err)
		}
	}
}
