package agentclient

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// stream makes a byte stream the one connection that gRPC gets, and remembers
// how it ended: end of file and a broken protocol look alike from above.
type stream struct {
	io.ReadWriteCloser
	close func() error // the Client closes it too
	// ended is called once, with the first reason: an I/O error, or nil if gRPC closed a
	// healthy stream because of what it read.
	ended func(error)
	once  sync.Once
}

var _ net.Conn = (*stream)(nil)

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Read(p)
	if err != nil {
		s.end(err)
	}
	return n, err
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.ReadWriteCloser.Write(p)
	if err != nil {
		s.end(err)
	}
	return n, err
}

// Close is called by gRPC, also when the peer broke HTTP/2.
func (s *stream) Close() error {
	s.end(nil)
	return s.close()
}

func (s *stream) end(err error) { s.once.Do(func() { s.ended(err) }) }

// errStreamUsed is what gRPC gets when it wants to connect again: a session is
// never resumed, since the guest behind it may be another.
var errStreamUsed = errors.New("the agent's stream can't be opened twice")

// streamAddr is the address of both ends, for gRPC's messages only.
type streamAddr struct{}

func (streamAddr) Network() string { return "virtio-console" }
func (streamAddr) String() string  { return "guest agent" }

func (*stream) LocalAddr() net.Addr  { return streamAddr{} }
func (*stream) RemoteAddr() net.Addr { return streamAddr{} }

func (s *stream) SetDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetDeadline(time.Time) error }); ok {
		return d.SetDeadline(t)
	}
	return nil
}

func (s *stream) SetReadDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return nil
}

func (s *stream) SetWriteDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return nil
}
