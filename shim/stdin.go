package shim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

const nonblock = unix.O_NONBLOCK

// stdin reads a FIFO. It ends when all writers have gone, or when end was called and what they wrote is read.
type stdin struct {
	fifo int // closed by Read alone, and by nobody if Read isn't called to the end
	wake *os.File
	woke *os.File
	once sync.Once

	mu   sync.Mutex // of fifo
	over bool
}

// openStdin doesn't wait for a writer.
func openStdin(path string) (*stdin, error) {
	fifo, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("stdin %s: %w", path, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, unix.Close(fifo))
	}
	return &stdin{fifo: fifo, wake: w, woke: r}, nil
}

// end makes Read return io.EOF once the FIFO is empty.
func (s *stdin) end() { s.once.Do(func() { _ = s.wake.Close() }) }

// Read implements io.Reader, for one caller at a time. Until a writer came the kernel reports no hang-up; so it waits for
// the first one.
func (s *stdin) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return 0, io.EOF
	}
	fds := []unix.PollFd{{Fd: int32(s.fifo), Events: unix.POLLIN}, {Fd: int32(s.woke.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			return 0, s.finish(err)
		}
		if fds[0].Revents&unix.POLLIN != 0 {
			n, err := unix.Read(s.fifo, b)
			switch {
			case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
				continue
			case err != nil:
				return 0, s.finish(err)
			case n > 0:
				return n, nil
			}
		}
		if fds[0].Revents != 0 || fds[1].Revents != 0 {
			return 0, s.finish(io.EOF)
		}
	}
}

func (s *stdin) finish(err error) error {
	s.over = true
	_ = unix.Close(s.fifo)
	_ = s.woke.Close()
	return err // io.EOF itself: readers compare it
}
