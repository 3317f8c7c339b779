//go:build linux

package agentd

import (
	"io"
	"os"
	"sync"
)

// maxLeftBehind is how many streams of ended execs are read on, 12 KiB of the agent's memory each. The one that is
// over it costs the oldest, whose writers get EPIPE.
const maxLeftBehind = 256

// leftBehind reads what processes write that outlive their exec, and throws it away: a server that was started in the
// background must not fail at its next line of log because the command that started it has ended.
type leftBehind struct {
	max int

	mu     sync.Mutex
	files  []*os.File // oldest first
	closed bool
	wg     sync.WaitGroup
}

// take reads f to its end and closes it.
func (l *leftBehind) take(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		f.Close()
		return
	}
	if len(l.files) == l.max {
		l.files[0].Close() // its reader takes it out of the list
		l.files = l.files[1:]
	}
	l.files = append(l.files, f)
	l.wg.Go(func() {
		_, _ = io.Copy(io.Discard, f) // ends with the last writer, or by Close
		l.drop(f)
	})
}

func (l *leftBehind) drop(f *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, other := range l.files {
		if other == f {
			l.files = append(l.files[:i:i], l.files[i+1:]...)
			break
		}
	}
	f.Close()
}

// close ends all reading and waits for it.
func (l *leftBehind) close() {
	l.mu.Lock()
	l.closed = true
	for _, f := range l.files {
		f.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
