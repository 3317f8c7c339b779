package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/msb-project/msb/sandbox"
)

// TestRemovalOfNone: with --force it is no error, as with docker, so that a script can begin with it.
func TestRemovalOfNone(t *testing.T) {
	t.Parallel()
	env := []string{sandbox.EnvHome + "=" + t.TempDir()}
	for code, args := range map[int][]string{exitSandbox: {"rm", "nosuch"}, 0: {"rm", "-f", "nosuch"}} {
		if got := msb(t, env, args...); got.code != code || got.out != "" || !strings.Contains(got.err, "no such sandbox: nosuch") {
			t.Errorf("msb %v: %+v, want %d", args, got, code)
		}
	}
}

// scripted is a sandbox whose stops and removals end as they are told to.
type scripted struct{ stops, removals []error }

func (s *scripted) Stop(context.Context, string) error   { return next(&s.stops) }
func (s *scripted) Remove(context.Context, string) error { return next(&s.removals) }

func next(all *[]error) error {
	first := (*all)[0]
	*all = (*all)[1:]
	return first
}

// TestForcedRemovals: of a sandbox that removes itself once it is stopped, one that another command starts meanwhile, and one
// that was never there.
func TestForcedRemovals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		home scripted
		want error
	}{
		"stopped":      {scripted{[]error{sandbox.ErrNotRunning}, []error{nil}}, nil},
		"removes self": {scripted{[]error{nil}, []error{sandbox.ErrNoSandbox}}, nil},
		"started":      {scripted{[]error{sandbox.ErrNotRunning, nil}, []error{sandbox.ErrRunning, nil}}, nil},
		"none":         {scripted{[]error{sandbox.ErrNoSandbox}, nil}, sandbox.ErrNoSandbox},
		"none stopped": {scripted{[]error{sandbox.ErrNotRunning}, []error{sandbox.ErrNoSandbox}}, sandbox.ErrNoSandbox},
	} {
		if err := stopAndRemove(t.Context(), &c.home, "x"); !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(c.home.stops)+len(c.home.removals) > 0 {
			t.Errorf("%s: it gave up early", name)
		}
	}
}
