package netstacktest

import (
	"context"
	"sync"
)

// maxFrames bounds what a guest keeps of what it received.
const maxFrames = 4096

// frameLog keeps the last frames that came to a guest.
type frameLog struct {
	mu     sync.Mutex
	frames [][]byte
	seen   int // frames dropped from the front
	wake   chan struct{}
}

func (l *frameLog) add(frame []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.frames) == maxFrames {
		l.frames = l.frames[maxFrames/2:]
		l.seen += maxFrames / 2
	}
	l.frames = append(l.frames, append([]byte(nil), frame...))
	if l.wake != nil {
		close(l.wake)
		l.wake = nil
	}
}

// Frames returns copies of the last frames that came from the gateway.
func (g *Guest) Frames() [][]byte {
	g.frames.mu.Lock()
	defer g.frames.mu.Unlock()
	return append([][]byte(nil), g.frames.frames...)
}

// WaitFrame returns the first frame from the gateway, old or new, for which
// match is true.
func (g *Guest) WaitFrame(ctx context.Context, match func([]byte) bool) ([]byte, error) {
	l := &g.frames
	next := 0
	for {
		l.mu.Lock()
		for next = max(next, l.seen); next < l.seen+len(l.frames); next++ {
			if f := l.frames[next-l.seen]; match(f) {
				l.mu.Unlock()
				return f, nil
			}
		}
		if l.wake == nil {
			l.wake = make(chan struct{})
		}
		wake := l.wake
		l.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
