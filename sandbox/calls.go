package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/sandbox/internal/state"
)

const (
	// maxCallsFile bounds each of the two files of calls, in bytes, and maxCall one line.
	maxCallsFile = 128 << 10
	maxCall      = 4 << 10
	// callsLockWait bounds the wait for another process that writes a line.
	callsLockWait = time.Second
)

var errCallsBusy = errors.New("another process holds the file of calls")

// AddCall adds a line to what was done with the sandbox of that name by servers for agents. The newest lines are kept with
// the sandbox, whichever process wrote them, until it is removed. A kill loses the line that is being written, and no other.
func AddCall(h *Home, name string, line []byte) error { return Fail(addCall(h, name, line)) }

func addCall(h *Home, name string, line []byte) error {
	if len(line) > maxCall || bytes.IndexByte(line, '\n') >= 0 {
		return errors.New("a call of more than one line, or a long one")
	}
	f, err := openCalls(h, name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	// The newline comes first: behind a line that a kill cut short, this one stands alone.
	_, err = f.Write(append([]byte{'\n'}, line...))
	return err
}

// openCalls opens the newer file, with its lock. One that is full is set aside.
func openCalls(h *Home, name string) (*os.File, error) {
	path := namedPath(h, name, state.CallsFile)
	ctx, cancel := context.WithTimeout(context.Background(), callsLockWait)
	defer cancel()
	for {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			_, err = loadStored(h, name) // of the sandbox in whose directory the file is, or of a later one
		}
		info, statErr := f.Stat()
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			err = nil
			select {
			case <-ctx.Done():
				err = errCallsBusy
			case <-time.After(time.Millisecond):
			}
		case err != nil || statErr != nil:
			err = errors.Join(err, statErr)
		case !isAt(f, path): // another process has set it aside
		case info.Size() < maxCallsFile:
			return f, nil
		default:
			err = os.Rename(path, path+state.OlderCalls)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

// PastCalls are the lines of AddCall that are kept, the oldest first.
func PastCalls(h *Home, name string) ([][]byte, error) {
	if _, err := loadStored(h, name); err != nil {
		return nil, Fail(err)
	}
	var lines [][]byte
	for _, end := range []string{state.OlderCalls, ""} {
		text, err := state.ReadOwn(namedPath(h, name, state.CallsFile) + end)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, Fail(err)
		}
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				lines = append(lines, line)
			}
		}
	}
	return lines, nil
}
