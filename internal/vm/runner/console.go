package runner

import (
	"errors"
	"io"
	"os"
	"sync"

	"github.com/msb-project/msb/internal/rotate"
)

const (
	// ConsoleLogMax bounds each of the two files that a console log may have:
	// when the log reaches it, it is renamed to "<name>.1", replacing the one
	// before, and begun again. A guest can print for ever.
	ConsoleLogMax = 1 << 20
	// consoleTail is how much of the console's end is kept in memory for
	// errors: a kernel panic with its trace takes about 4 KiB.
	consoleTail = 64 << 10
)

// console is where a guest's console output ends: in a log of bounded size and
// a tail in memory.
type console struct {
	mu   sync.Mutex
	log  rotate.File
	tail tail
	// failed is the first error of the log file. The console is then kept in
	// memory only: a full disk must not stop the guest's console, for a
	// console that is not read blocks the guest.
	failed error
}

func newConsole(path string) (*console, error) {
	c := &console{
		log:  rotate.File{Path: path, Max: ConsoleLogMax, Keep: 1, Opener: openConsole},
		tail: tail{max: consoleTail},
	}
	if path == "" {
		return c, nil
	}
	return c, c.log.Open()
}

func openConsole(path string) (*os.File, error) {
	// Guest output, possibly with what a program printed there: not for others.
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
}

// Write implements io.Writer. It never fails: see console.failed.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail.write(p)
	if c.log.File == nil {
		return len(p), nil
	}
	all := func(p []byte) int { return len(p) }
	if _, err := c.log.Write(p, all, c.rotate); err != nil { // the file is given up at its first error
		c.failed = errors.Join(err, c.log.Close())
	}
	return len(p), nil
}

func (c *console) rotate() error {
	if err := c.log.SetAside(); err != nil {
		return err
	}
	return c.log.Open()
}

// Close ends the log; the tail stays.
func (c *console) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = errors.Join(c.failed, c.log.Close())
	return c.failed
}

// lastLines returns at most the last n bytes.
func (c *console) lastLines(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tail.last(n)
}

// consoleChunk is one read of the console. It is below ConsoleLogMax, so that
// a write always fits after a rotation.
const consoleChunk = 32 << 10

// copyFrom reads the console until its end.
func (c *console) copyFrom(r io.Reader) {
	// No limit: a console that is not read blocks the guest.
	_, _ = io.CopyBuffer(onlyWriter{c}, r, make([]byte, consoleChunk))
}

// onlyWriter keeps io.CopyBuffer from using other methods than Write.
type onlyWriter struct{ io.Writer }

// tail keeps the last max bytes of what is written to it.
type tail struct {
	max int
	buf []byte
}

func (t *tail) write(p []byte) {
	if len(p) > t.max {
		p = p[len(p)-t.max:]
	}
	// Twice the size before it is cut, so that a byte is moved once on average.
	if len(t.buf)+len(p) > 2*t.max {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-t.max:]...)
	}
	t.buf = append(t.buf, p...)
}

func (t *tail) last(n int) string {
	n = min(n, t.max, len(t.buf))
	return string(t.buf[len(t.buf)-max(n, 0):])
}
