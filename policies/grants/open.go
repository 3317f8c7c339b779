package grants

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/msb-project/msb/policies"
)

// Open opens the file of a "file:" source. One that is held is opened at its real
// path, where no link may stand by now.
func Open(s *policies.Source) (*os.File, error) {
	if s.Hold == nil {
		return os.Open(s.Value)
	}
	return openHeld(s.Hold.Path)
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
