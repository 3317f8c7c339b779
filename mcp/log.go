package mcp

import (
	"bytes"
	"io"
)

// maxLogLines bounds the lines of a log that wait for a client to read them.
const maxLogLines = 256

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
	select {
	case l <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}
