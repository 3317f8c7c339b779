package mcp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
)

// warnings leaves out what go-sdk says of each session that begins and ends.
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
)

// NewLog is a writer for a client that may not read its server's standard error: lines that it leaves in the pipe are
// dropped, instead of holding calls up. What is written last may be lost with the process.
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
	cut := line
	if len(line) > maxLogLine {
		const end = "…\n"
		cut = slices.Concat(trimEnd(line[:maxLogLine-len(end)]), []byte(end)) // line is the caller's
	}
	select {
	case l <- bytes.Clone(cut):
	default:
	}
	return len(line), nil
}
