package grants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/msb-project/msb/policies"
)

// Open opens the file of a "file:" source. One that is held is opened at its real
// path, where no link may stand by now, or within its directory.
func Open(s *policies.Source) (*os.File, error) {
	switch {
	case s.Hold == nil:
		return os.Open(s.Value)
	case s.Hold.Within != "":
		return openWithin(s.Hold.Within, s.Value)
	}
	return openHeld(s.Hold.Path)
}

// openWithin waits for nobody who would write to a pipe.
func openWithin(dir, path string) (*os.File, error) {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	return f, errors.Join(err, root.Close())
}

// openCompared is what kernels without openat2 can do: a link is found, unless it
// is changed between the two looks.
func openCompared(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err != nil || real != path {
		return nil, errors.Join(fmt.Errorf("%s leads elsewhere since it was approved", policies.QuoteArgs([]string{path})), err, f.Close())
	}
	return f, nil
}
