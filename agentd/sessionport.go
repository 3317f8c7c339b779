//go:build linux

package agentd

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// sessionPort is the agent's port, on which sessions follow each other. A machine may be saved in the middle of one, and go
// on later with a host that knows nothing of it: neither where in HTTP/2's frames the streams are, nor which calls are open.
// That host writes the key of the last handshake, alone. The kernel keeps what the host writes in buffers of its own, one for
// each write as short as this, so that a read begins with the key and has nothing else: what was on the way before is in
// other buffers. Nobody else writes these bytes by accident, and whoever knows the key reads this process's memory.
type sessionPort struct {
	rwc   io.ReadWriteCloser
	key   atomic.Pointer[[]byte] // nil for a machine that is not saved
	write sync.Mutex
}

// errResumed is the end of a session whose machine was saved and goes on.
var errResumed = errors.New("the machine was saved, and goes on with another host")

func (p *sessionPort) setKey(key []byte) {
	if len(key) == 0 {
		p.key.Store(nil)
		return
	}
	p.key.Store(&key)
}

// answerResume writes the key back, behind all that was written of the session before.
func (p *sessionPort) answerResume() error {
	p.write.Lock()
	defer p.write.Unlock()
	_, err := p.rwc.Write(*p.key.Swap(nil))
	return err
}

// portSession is one session's use of the port.
type portSession struct {
	port    *sessionPort
	resumed atomic.Bool // another one has begun
}

// Read implements io.Reader.
func (s *portSession) Read(b []byte) (int, error) {
	if s.resumed.Load() {
		return 0, errResumed
	}
	n, err := s.port.rwc.Read(b)
	if key := s.port.key.Load(); key != nil && bytes.Equal(b[:n], *key) {
		s.resumed.Store(true) // before gRPC ends the calls
		return 0, errResumed
	}
	return n, err
}

// Write implements io.Writer. One that is on its way ends before the next session's begin.
func (s *portSession) Write(b []byte) (int, error) {
	s.port.write.Lock()
	defer s.port.write.Unlock()
	if s.resumed.Load() {
		return 0, errResumed
	}
	return s.port.rwc.Write(b)
}

// Close implements io.Closer.
func (s *portSession) Close() error {
	if s.resumed.Load() {
		return nil // the port is the next session's
	}
	return s.port.rwc.Close()
}
