package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// spaceError gives errors of a full disk their sentinel and remedy.
func spaceError(dir string, err error) error {
	if err == nil || errors.Is(err, ErrNoSpace) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w under %s: free some, remove images that are not needed, or set MSB_HOME to a larger disk: %w",
			ErrNoSpace, dir, err)
	}
	return err
}

// spaceWriter writes a file of at most limit bytes, and ends before the disk is full.
type spaceWriter struct {
	ctx      context.Context // lives for one unpack
	f        *os.File
	dir      string
	n, limit int64
	looked   int64 // up to where there was room when it was looked for
}

// spaceStep is how much is written between two looks at the free space. Bytes.
const spaceStep = 8 << 20

func (w *spaceWriter) Write(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	if w.n+int64(len(p)) > w.limit {
		return 0, fmt.Errorf("%w: it decompresses to more than %d bytes", ErrLimit, w.limit)
	}
	if w.n+int64(len(p)) > w.looked {
		if err := checkFree(w.dir, 2*spaceStep); err != nil {
			return 0, err
		}
		w.looked = w.n + spaceStep
	}
	n, err := w.f.Write(p)
	w.n += int64(n)
	return n, err
}
