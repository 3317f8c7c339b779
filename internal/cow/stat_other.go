//go:build !linux

package cow

import (
	"errors"
	"io/fs"
	"os"
)

// Directories are shared on Linux alone: elsewhere there is nothing to apply.

func fileOf(fs.FileInfo) File { return File{} }

type mount struct{}

func mountOf(*os.File) (mount, error) { return mount{}, errors.ErrUnsupported }

func noReplace(*os.File, string, string) error { return errors.ErrUnsupported }
