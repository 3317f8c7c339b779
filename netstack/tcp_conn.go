package netstack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/waiter"
)

var _ net.Conn = (*TCPConn)(nil)

// TCPConn is an established connection with the guest. Errors are those of
// package net: io.EOF after the guest's FIN, syscall.ECONNRESET after its RST,
// os.ErrDeadlineExceeded after a deadline.
type TCPConn struct {
	inner *gonet.TCPConn
	ep    tcpip.Endpoint
	wq    *waiter.Queue
	flow  *TCPFlow
	once  sync.Once
}

func newTCPConn(f *TCPFlow, wq *waiter.Queue, ep tcpip.Endpoint) *TCPConn {
	tuneEndpoint(ep)
	return &TCPConn{inner: gonet.NewTCPConn(wq, ep), ep: ep, wq: wq, flow: f}
}

// Read implements net.Conn.
func (c *TCPConn) Read(b []byte) (int, error) {
	n, err := c.inner.Read(b)
	return n, translateConn(err)
}

// Write implements net.Conn.
func (c *TCPConn) Write(b []byte) (int, error) {
	n, err := c.inner.Write(b)
	return n, translateConn(err)
}

// Close sends FIN after what was written. The flow's slot is free once the
// guest has acknowledged, or closeLinger later.
func (c *TCPConn) Close() error {
	c.once.Do(func() {
		c.ep.Close()
		c.flow.stack.tcp.linger(c.flow, c.ep)
	})
	return nil
}

// Reset sends RST and throws away what was not sent yet.
func (c *TCPConn) Reset() {
	c.once.Do(func() {
		c.ep.SocketOptions().SetLinger(tcpip.LingerOption{Enabled: true})
		c.ep.Abort()
		c.ep.Close()
		c.flow.stack.tcp.release(c.flow)
	})
}

// CloseWrite sends FIN after what was written; reading goes on.
func (c *TCPConn) CloseWrite() error { return translateConn(c.inner.CloseWrite()) }

// LocalAddr is the address that the guest dialled.
func (c *TCPConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.flow.dst) }

// RemoteAddr is the guest's address.
func (c *TCPConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.flow.src) }

// SetDeadline implements net.Conn.
func (c *TCPConn) SetDeadline(t time.Time) error { return c.inner.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *TCPConn) SetReadDeadline(t time.Time) error { return c.inner.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *TCPConn) SetWriteDeadline(t time.Time) error { return c.inner.SetWriteDeadline(t) }

type handshakeError struct {
	dst netip.AddrPort
	err error
}

func (e *handshakeError) Error() string {
	return fmt.Sprintf("netstack: guest did not complete its handshake with %s: %v", e.dst, e.err)
}

func (e *handshakeError) Unwrap() error { return e.err }

// translate turns gVisor's errors into those that callers of package net know.
func translate(terr tcpip.Error) error {
	switch terr.(type) {
	case *tcpip.ErrConnectionReset:
		return syscall.ECONNRESET
	case *tcpip.ErrTimeout:
		return syscall.ETIMEDOUT
	case *tcpip.ErrConnectionRefused:
		return syscall.ECONNREFUSED
	case *tcpip.ErrConnectionAborted, *tcpip.ErrAborted:
		return syscall.ECONNABORTED
	case *tcpip.ErrClosedForSend:
		return syscall.EPIPE
	case *tcpip.ErrHostUnreachable:
		return syscall.EHOSTUNREACH
	case *tcpip.ErrNetworkUnreachable:
		return syscall.ENETUNREACH
	default:
		return errors.New(terr.String())
	}
}

// translatable are the errors that gonet flattens into strings.
var translatable = []tcpip.Error{
	&tcpip.ErrConnectionReset{}, &tcpip.ErrTimeout{}, &tcpip.ErrConnectionRefused{},
	&tcpip.ErrConnectionAborted{}, &tcpip.ErrAborted{}, &tcpip.ErrClosedForSend{},
	&tcpip.ErrHostUnreachable{}, &tcpip.ErrNetworkUnreachable{},
}

// translateConn gives errors of gonet the identity that it takes from them:
// it answers plain strings where callers ask errors.Is.
func translateConn(err error) error {
	var op *net.OpError
	if err == nil || !errors.As(err, &op) {
		return err
	}
	if op.Timeout() {
		op.Err = os.ErrDeadlineExceeded
		return op
	}
	text := op.Err.Error()
	for _, terr := range translatable {
		if terr.String() == text {
			op.Err = translate(terr)
			break
		}
	}
	return op
}

// waitReadable blocks until a Read would not: bytes, FIN or an error. It keeps
// no buffer meanwhile. Deadlines do not end it; Close and Reset do.
func (c *TCPConn) waitReadable() error {
	if c.ep.Readiness(readable) != 0 {
		return nil
	}
	entry, ready := waiter.NewChannelEntry(readable)
	c.wq.EventRegister(&entry)
	defer c.wq.EventUnregister(&entry)
	for c.ep.Readiness(readable) == 0 {
		select {
		case <-ready:
		case <-c.flow.ctx.Done():
			return net.ErrClosed
		}
	}
	return nil
}

// readable are the events after which a Read returns.
const readable = waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp
