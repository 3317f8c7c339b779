//go:build linux

package hostdir

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// numberBytes is what precedes each message on a port: the number of its
// directory. The message begins with its own length.
const numberBytes = 4

// Port carries the messages of several directories over one stream. It holds one message: where a directory's requests
// aren't taken, because maxInflight of them wait for its disk, the others' wait too.
type Port struct {
	stream io.ReadWriter
	send   sync.Mutex

	mu    sync.Mutex
	conns map[uint32]*PortConn
	last  uint32
	err   error // why Serve ended
}

// NewPort makes a Port of a stream to a guest.
func NewPort(stream io.ReadWriter) *Port {
	return &Port{stream: stream, conns: map[uint32]*PortConn{}}
}

// PortConn is the Conn of one directory.
type PortConn struct {
	// Number is what precedes its messages.
	Number uint32

	port     *Port
	requests chan []byte
	closed   chan struct{}
	once     sync.Once
}

var _ Conn = (*PortConn)(nil)

// Open makes the Conn of one more directory.
func (p *Port) Open() *PortConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	c := &PortConn{Number: p.last, port: p, requests: make(chan []byte), closed: make(chan struct{})}
	if p.err != nil {
		c.once.Do(func() { close(c.closed) })
	} else {
		p.conns[c.Number] = c
	}
	return c
}

// Serve hands out what the guest sends until the stream ends or the guest breaks
// the protocol, which ends the directories as well.
func (p *Port) Serve() error {
	err := p.serve()
	p.mu.Lock()
	p.err = err
	conns := p.conns
	p.conns = nil
	p.mu.Unlock()
	for _, c := range conns {
		c.once.Do(func() { close(c.closed) })
	}
	return err
}

func (p *Port) serve() error {
	in := bufio.NewReaderSize(p.stream, numberBytes+maxMessage)
	for {
		head, err := in.Peek(numberBytes + headerBytes)
		if err != nil {
			return err
		}
		number, length := order.Uint32(head), order.Uint32(head[numberBytes:])
		if length < headerBytes || length > maxMessage {
			return fmt.Errorf("%w: %d bytes", errProtocol, length)
		}
		message, err := in.Peek(numberBytes + int(length))
		if err != nil {
			return err
		}
		p.mu.Lock()
		c := p.conns[number]
		p.mu.Unlock()
		if c != nil { // else it was closed meanwhile
			select {
			case c.requests <- bytes.Clone(message[numberBytes:]):
			case <-c.closed:
			}
		}
		_, _ = in.Discard(len(message)) // it is in the buffer
	}
}

// Recv implements Conn.
func (c *PortConn) Recv() ([]byte, error) {
	select {
	case b := <-c.requests:
		return b, nil
	case <-c.closed:
		return nil, io.EOF
	}
}

// Send implements Conn.
func (c *PortConn) Send(reply []byte) error {
	select {
	case <-c.closed:
		return os.ErrClosed
	default:
	}
	c.port.send.Lock()
	defer c.port.send.Unlock()
	parts := net.Buffers{put32(make([]byte, 0, numberBytes), c.Number), reply}
	_, err := parts.WriteTo(c.port.stream)
	return err
}

// Close ends Recv.
func (c *PortConn) Close() {
	c.once.Do(func() { close(c.closed) })
	c.port.mu.Lock()
	delete(c.port.conns, c.Number)
	c.port.mu.Unlock()
}
