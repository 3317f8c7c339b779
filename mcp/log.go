package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/internal/rotate"
	"github.com/msb-project/msb/sandbox"
)

// warnings drops go-sdk's lines about the begin and end of each session.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }

const (
	// maxLogLines bounds the lines of a log that wait for a client to read them.
	maxLogLines = 256
	// maxLogLine bounds one of them, in bytes: an error may repeat what a client sent.
	maxLogLine = 4 << 10
	// LogFile is the file of the state directory that all servers log to; each line names its server's process.
	LogFile = "mcp.log"
	// maxLogFile bounds what one server writes there before it sets the file aside as mcp.log.1, in bytes.
	maxLogFile = 4 << 20
)

// OpenLogFile opens LogFile. Lines that can't be written, for lack of space, are dropped, and the server continues.
func OpenLogFile(home *sandbox.Home) (io.WriteCloser, error) {
	open := func(path string) (*os.File, error) {
		return rotate.OpenNow(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW)
	}
	l := &logFile{rotate.File{Path: filepath.Join(home.Dir(), LogFile), Max: maxLogFile, Keep: 1, Opener: open}}
	if err := l.file.Open(); err != nil {
		return nil, fmt.Errorf("the log can't be opened: %w", err)
	}
	return l, nil
}

type logFile struct{ file rotate.File }

// Write implements io.Writer for one line.
func (l *logFile) Write(line []byte) (int, error) {
	whole := fmt.Appendf(nil, "pid=%d %s", os.Getpid(), cutLine(line))
	var err error
	if l.file.File == nil { // it could not be opened behind the last one
		err = l.file.Open()
	}
	if err == nil {
		_, _ = l.file.Write(whole, func(b []byte) int { return len(b) }, func() error { return errors.Join(l.file.SetAside(), l.file.Open()) })
	}
	return len(line), nil
}

// Close implements io.Closer.
func (l *logFile) Close() error { return l.file.Close() }

// cutLine is a line of a log of at most maxLogLine bytes.
func cutLine(line []byte) []byte {
	if len(line) <= maxLogLine {
		return line
	}
	const end = "…\n"
	return slices.Concat(trimEnd(line[:maxLogLine-len(end)]), []byte(end)) // line is the caller's
}

// NewLog is a writer to standard error for a client that may not read it: lines that don't fit in the pipe are dropped, so
// that they don't block calls. The last lines may be lost when the process ends.
func NewLog(w io.Writer) io.Writer {
	l := make(logWriter, maxLogLines)
	go func() { // for as long as the process lives
		for line := range l {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	}()
	return l
}

type logWriter chan []byte

// Write implements io.Writer.
func (l logWriter) Write(line []byte) (int, error) {
	select {
	case l <- bytes.Clone(cutLine(line)):
	default:
	}
	return len(line), nil
}
