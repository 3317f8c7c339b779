package agentclient

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/msb-project/msb/agentd/agentpb"
)

// execSender is the sending half of one exec, shared by stdin, resize and
// signals: gRPC allows one Send at a time.
type execSender struct {
	call  agentpb.Agent_ExecClient
	mu    sync.Mutex
	stdin *window
	seen  *witnessed // nil if nobody is told
	// detached is set before the request is sent.
	detached atomic.Bool
}

func (s *execSender) send(req *agentpb.ExecRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call.Send(req)
}

// forwardControls ends with ctx, which Exec cancels when it returns.
func (s *execSender) forwardControls(ctx context.Context, resize <-chan Size, signals <-chan Signal) {
	for {
		var req agentpb.ExecRequest
		select {
		case <-ctx.Done():
			return
		case size, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			req.Request = &agentpb.ExecRequest_Resize{Resize: size.message()}
		case sig, ok := <-signals:
			if !ok {
				signals = nil
				continue
			}
			req.Request = &agentpb.ExecRequest_Signal{Signal: uint32(sig)}
		}
		if s.send(&req) != nil {
			return // the receiving half tells why
		}
	}
}

// forwardStdin sends no more than the guest has room for, so that a process
// that does not read its stdin can still be signalled.
func (s *execSender) forwardStdin(ctx context.Context, r io.Reader) {
	buf := make([]byte, agentpb.ChunkBytes)
	for {
		n, err := r.Read(buf)
		for rest := buf[:n]; len(rest) > 0; {
			k := s.stdin.take(ctx, len(rest))
			if k == 0 {
				return
			}
			req := &agentpb.ExecRequest{Request: &agentpb.ExecRequest_Stdin{Stdin: rest[:k]}}
			if s.send(req) != nil {
				return
			}
			rest = rest[k:]
		}
		if errors.Is(err, ErrDetach) {
			s.detached.Store(true)
			_ = s.send(&agentpb.ExecRequest{Request: &agentpb.ExecRequest_Detach{Detach: &agentpb.ExecDetach{}}}) // as below
			return
		}
		if err != nil {
			// A reader that fails is treated as one that ended, so that the process doesn't
			// wait for ever.
			eof := &agentpb.ExecRequest_StdinEof{StdinEof: &agentpb.StdinEOF{}}
			_ = s.send(&agentpb.ExecRequest{Request: eof}) // the receiving half tells why
			return
		}
	}
}

// window counts the bytes of stdin that may be sent.
type window struct {
	mu   sync.Mutex
	size int
	free int
	wake chan struct{}
}

func newWindow() *window { return &window{wake: make(chan struct{}, 1)} }

func (w *window) open(size int) {
	w.mu.Lock()
	w.size, w.free = size, size
	w.mu.Unlock()
}

// take waits for room in the window and takes up to most bytes of it; 0 means that ctx ended.
func (w *window) take(ctx context.Context, most int) int {
	for {
		w.mu.Lock()
		n := min(w.free, most)
		w.free -= n
		w.mu.Unlock()
		if n > 0 {
			return n
		}
		select {
		case <-ctx.Done():
			return 0
		case <-w.wake:
		}
	}
}

// ack gives n bytes back; false when that many were not out.
func (w *window) ack(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n <= 0 || n > w.size-w.free {
		return false
	}
	w.free += n
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return true
}
