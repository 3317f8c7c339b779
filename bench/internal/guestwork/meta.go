//go:build linux

package guestwork

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// smallFile is what a small file holds.
var smallFile = make([]byte, 1000)

// meta makes n files in 10 directories and does to them what tools do.
func (f Values) meta(dir string, n int) error {
	name := func(i int) string { return filepath.Join(dir, strconv.Itoa(i%10), fmt.Sprintf("file-%d", i)) }
	each := func(do func(path string) error) func() error {
		return func() error {
			for i := range n {
				if err := do(name(i)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for i := range 10 {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i)), 0o755); err != nil {
			return err
		}
	}
	missing := func(path string) error {
		if _, err := os.Lstat(path + ".missing"); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s.missing: %w", path, err)
		}
		return nil
	}
	steps := []struct {
		series string
		cold   bool
		do     func() error
	}{
		{Make, false, each(func(p string) error { return os.WriteFile(p, smallFile, 0o644) })},
		{Stat, true, each(func(p string) error { _, err := os.Lstat(p); return err })},
		{Missing, false, each(missing)},
		{MissingAgain, false, each(missing)},
		{List, true, func() error {
			return filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err == nil {
					_, err = d.Info()
				}
				return err
			})
		}},
		{ReadSmall, true, each(func(p string) error { _, err := os.ReadFile(p); return err })},
		{ReadAgain, false, each(func(p string) error { _, err := os.ReadFile(p); return err })},
		{Rename, false, each(func(p string) error { return os.Rename(p, p+".new") })},
		{Remove, false, each(func(p string) error { return os.Remove(p + ".new") })},
	}
	var all time.Duration
	for _, s := range steps {
		if s.cold {
			if err := DropCaches(); err != nil {
				return err
			}
		}
		began := time.Now()
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.series, err)
		}
		took := time.Since(began)
		all += took
		f.add(s.series, float64(n)/took.Seconds())
	}
	f.add(Meta, float64(n*len(steps))/all.Seconds())
	return os.RemoveAll(dir)
}
