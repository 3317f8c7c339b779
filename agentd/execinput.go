//go:build linux

package agentd

import (
	"os"
	"sync"
	"syscall"

	"github.com/msb-project/msb/agentd/agentpb"
	"github.com/msb-project/msb/agentd/internal/workload"
)

// receive takes the host's messages and never waits for the process, so that a
// signal is not stuck behind stdin. It ends with the stream.
func (e *execution) receive() {
	for {
		req, err := e.stream.Recv()
		if err != nil {
			e.stdin.end()
			return
		}
		switch r := req.GetRequest().(type) {
		case *agentpb.ExecRequest_Stdin:
			if !e.stdin.put(r.Stdin) {
				e.overCredit.Store(true)
				e.stdin.close()
				e.proc.SignalGroup(syscall.SIGKILL)
				return
			}
		case *agentpb.ExecRequest_StdinEof:
			e.stdin.end()
		case *agentpb.ExecRequest_Resize:
			if e.tty {
				_ = workload.Resize(e.proc.Stdout, windowSize(r.Resize)) // the terminal may be gone
			}
		case *agentpb.ExecRequest_Signal:
			e.proc.SignalGroup(syscall.Signal(r.Signal)) // the kernel knows which there are
		}
	}
}

// endOfTransmission is what a terminal takes for end of file (termios VEOF).
var endOfTransmission = []byte{4}

// feedStdin writes to the process and gives the host its credit back.
func (e *execution) feedStdin() {
	defer close(e.fed)
	for {
		chunk, ok := e.stdin.take()
		if !ok {
			break
		}
		if e.proc.Stdin == nil {
			e.stdin.written(len(chunk))
			continue
		}
		// A process that closed its stdin gets no more of it; the host gets its
		// credit all the same and is not left waiting.
		_, _ = e.proc.Stdin.Write(chunk)
		e.stdin.written(len(chunk)) // before the host may use the credit
		ack := &agentpb.ExecResponse_StdinAck{StdinAck: uint32(len(chunk))}
		if e.send(&agentpb.ExecResponse{Response: ack}) != nil && !e.outlives() {
			return
		}
	}
	if e.proc.Stdin == nil {
		return
	}
	if e.tty {
		if e.stdin.ended() {
			_, _ = e.proc.Stdin.Write(endOfTransmission) // the terminal may be gone
		}
		return
	}
	closeFile(e.proc.Stdin)
}

func closeFile(f *os.File) {
	f.Close()
}

// stdinQueue holds what the process has not read, at most StdinWindowBytes.
type stdinQueue struct {
	mu     sync.Mutex
	cond   *sync.Cond
	chunks [][]byte
	held   int  // bytes in chunks and in the one being written
	eof    bool // the host has no more
	closed bool // the process has ended
}

func newStdinQueue() *stdinQueue {
	q := &stdinQueue{}
	q.cond = sync.NewCond(&q.mu)
	return q
}

// put adds a chunk; false when the host went over its credit.
func (q *stdinQueue) put(p []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(p) == 0 {
		return true
	}
	if q.held+len(p) > agentpb.StdinWindowBytes {
		return false
	}
	q.held += len(p)
	q.chunks = append(q.chunks, p)
	q.cond.Signal()
	return true
}

// take waits for the next chunk; false at the end.
func (q *stdinQueue) take() ([]byte, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.chunks) == 0 && !q.eof && !q.closed {
		q.cond.Wait()
	}
	if q.closed || len(q.chunks) == 0 {
		return nil, false
	}
	p := q.chunks[0]
	q.chunks = q.chunks[1:]
	return p, true
}

// written frees the room of n bytes that take gave.
func (q *stdinQueue) written(n int) {
	q.mu.Lock()
	q.held -= n
	q.mu.Unlock()
}

func (q *stdinQueue) end() {
	q.mu.Lock()
	q.eof = true
	q.cond.Broadcast()
	q.mu.Unlock()
}

func (q *stdinQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.cond.Broadcast()
	q.mu.Unlock()
}

func (q *stdinQueue) ended() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.eof && !q.closed
}
