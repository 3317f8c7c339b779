//go:build linux

package agentd

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/msb-project/msb/agentd/agentpb"
)

// outputPumps copy a process's output to the host. A host that does not read
// stops them, and so the process: nothing piles up here.
type outputPumps struct {
	files []*os.File
	wg    sync.WaitGroup
	mu    sync.Mutex
	held  []*os.File
}

func (e *execution) pumpOutput() *outputPumps {
	p := &outputPumps{}
	stdout := func(b []byte) *agentpb.ExecResponse {
		return &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stdout{Stdout: b}}
	}
	stderr := func(b []byte) *agentpb.ExecResponse {
		return &agentpb.ExecResponse{Response: &agentpb.ExecResponse_Stderr{Stderr: b}}
	}
	p.start(e, e.proc.Stdout, stdout)
	if e.proc.Stderr != nil {
		p.start(e, e.proc.Stderr, stderr)
	}
	return p
}

func (p *outputPumps) start(e *execution, f *os.File, wrap func([]byte) *agentpb.ExecResponse) {
	p.files = append(p.files, f)
	p.wg.Go(func() {
		buf := make([]byte, agentpb.ChunkBytes)
		for {
			n, err := f.Read(buf)
			if n > 0 && e.send(wrap(buf[:n])) != nil && !e.outlives() {
				return
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if p.flush(e, f, buf, wrap) {
					p.hold(f)
				}
				return
			}
			if err != nil {
				return // end of file, or EIO of a terminal that was hung up
			}
		}
	})
}

// flush sends what is in the pipe already, at most what a pipe holds: the
// process that has ended wrote it, and a slow host must not lose it. What the
// one that goes on writes could be without end. It tells whether another
// process holds the pipe.
func (p *outputPumps) flush(e *execution, f *os.File, buf []byte, wrap func([]byte) *agentpb.ExecResponse) bool {
	raw, err := f.SyscallConn()
	if err != nil || f.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	for left := maxPipeBytes; left > 0; {
		n := 0
		readErr := raw.Read(func(fd uintptr) bool {
			n, err = unix.Read(int(fd), buf[:min(left, len(buf))])
			return true // never wait
		})
		if errors.Is(err, unix.EAGAIN) {
			return true
		}
		if readErr != nil || err != nil || n == 0 || e.send(wrap(buf[:n])) != nil && !e.outlives() {
			return false
		}
		left -= n
	}
	return true
}

// maxPipeBytes is the most a pipe holds unless root raised fs.pipe-max-size.
const maxPipeBytes = 1 << 20

func (p *outputPumps) hold(f *os.File) {
	p.mu.Lock()
	p.held = append(p.held, f)
	p.mu.Unlock()
}

// drain waits for the output's end, or for grace when another process holds
// it; it returns the files that one does.
func (p *outputPumps) drain(grace time.Duration) []*os.File {
	for _, f := range p.files {
		_ = f.SetReadDeadline(time.Now().Add(grace)) // a closed file has ended already
	}
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}
