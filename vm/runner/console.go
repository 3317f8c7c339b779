package runner

import (
	"io"
	"os"
	"sync"
)

const (
	// ConsoleLogMax bounds each of the two files that a console log may have:
	// when the log reaches it, it is renamed to "<name>.1", replacing the one
	// before, and begun anew. A guest can print for ever.
	ConsoleLogMax = 1 << 20
	// consoleTail is how much of the console's end is kept in memory for
	// errors: a kernel panic with its trace takes about 4 KiB.
	consoleTail = 64 << 10
)

// console is where a guest's console output ends: in a log of bounded size and
// a tail in memory.
type console struct {
	path string

	mu   sync.Mutex
	file *os.File
	size int64
	tail tail
	// failed is the first error of the log file. The console is then kept in
	// memory only: a full disk must not stop the guest's console, for a
	// console that is not read blocks the guest.
	failed error
}

func newConsole(path string) (*console, error) {
	c := &console{path: path, tail: tail{max: consoleTail}}
	if path == "" {
		return c, nil
	}
	return c, c.open()
}

func (c *console) open() error {
	// Guest output, possibly with what a program printed there: not for others.
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	c.file, c.size = f, 0
	return nil
}

// Write implements io.Writer. It never fails: see console.failed.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tail.write(p)
	if c.file == nil {
		return len(p), nil
	}
	if c.size+int64(len(p)) > ConsoleLogMax {
		c.rotate()
	}
	if c.file != nil {
		n, err := c.file.Write(p)
		c.size += int64(n)
		c.give(err)
	}
	return len(p), nil
}

func (c *console) rotate() {
	if err := c.file.Close(); err != nil {
		c.give(err)
		return
	}
	c.file = nil
	if err := os.Rename(c.path, c.path+".1"); err != nil {
		c.give(err)
		return
	}
	c.give(c.open())
}

// give gives the file up at its first error.
func (c *console) give(err error) {
	if err == nil || c.failed != nil {
		return
	}
	c.failed = err
	if c.file != nil {
		_ = c.file.Close()
		c.file = nil
	}
}

// Close ends the log; the tail stays.
func (c *console) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file != nil {
		c.give(c.file.Close())
		c.file = nil
	}
	return c.failed
}

// Tail returns at most the last n bytes.
func (c *console) Tail(n int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tail.last(n)
}

// consoleChunk is one read of the console. It is below ConsoleLogMax, so that
// a write always fits after a rotation.
const consoleChunk = 32 << 10

// copyFrom reads the console until its end.
func (c *console) copyFrom(r io.Reader) {
	// LimitReader-free on purpose: it must be read for as long as it lasts.
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
