//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// scope is what package emuhost needs of a test: temporary directories, a context,
// cleaning up, and a way out. Any other method of testing.TB panics.
type scope struct {
	testing.TB
	ctx      context.Context // testing.TB hands it out
	cancel   context.CancelFunc
	dir      string
	cleanups []func()
	failed   []error
}

// bail is what Fatalf panics with; end recovers it.
type bail struct{}

func newScope(ctx context.Context) (*scope, error) {
	dir, err := os.MkdirTemp("", "bench-boot-")
	if err != nil {
		return nil, err
	}
	s := &scope{dir: dir}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s, nil
}

// end must be deferred: it turns what was said by Fatal and Error into an
// error, and cleans up.
func (s *scope) end(err *error) {
	r := recover()
	if _, ours := r.(bail); r != nil && !ours {
		defer panic(r)
	}
	s.cancel()
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	*err = errors.Join(append([]error{*err}, append(s.failed, os.RemoveAll(s.dir))...)...)
}

// Helper implements testing.TB.
func (s *scope) Helper() {}

// Context implements testing.TB.
func (s *scope) Context() context.Context { return s.ctx }

// Cleanup implements testing.TB.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Errorf implements testing.TB.
func (s *scope) Errorf(format string, args ...any) {
	s.failed = append(s.failed, fmt.Errorf(format, args...))
}

// Fatalf implements testing.TB.
func (s *scope) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	panic(bail{})
}

// Fatal implements testing.TB.
func (s *scope) Fatal(args ...any) { s.Fatalf("%s", fmt.Sprint(args...)) }

// TempDir implements testing.TB.
func (s *scope) TempDir() string {
	dir, err := os.MkdirTemp(s.dir, "")
	if err != nil {
		s.Fatal(err)
	}
	return dir
}
