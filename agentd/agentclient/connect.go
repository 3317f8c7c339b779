package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Conn is a TCP connection to a server in the guest. One goroutine may read while another writes.
type Conn struct {
	c      *Client
	ctx    context.Context // of the call, which is the connection
	cancel context.CancelFunc
	call   agentpb.Connections_ConnectClient
	rest   []byte
	err    error // of reading
}

// Connect opens a connection to one of the guest's own addresses: loopback, or an interface's. ErrRefused if it is another
// address or nobody listens there. Cancelling ctx ends the connection.
func (c *Client) Connect(ctx context.Context, to netip.AddrPort) (*Conn, error) {
	return c.connect(ctx, &agentpb.ConnectStart{Address: to.Addr().String(), Port: uint32(to.Port())})
}

func (c *Client) connect(ctx context.Context, start *agentpb.ConnectStart) (*Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	call, err := c.conns.Connect(ctx)
	if err == nil {
		_ = call.Send(&agentpb.ConnectRequest{Request: &agentpb.ConnectRequest_Start{Start: start}}) // Recv has the call's error
		var first *agentpb.ConnectResponse
		if first, err = call.Recv(); err == nil && first.GetConnected() == nil {
			cancel()
			return nil, c.fail(fmt.Errorf("%w: a connection that did not begin", ErrProtocol))
		}
	}
	if err != nil {
		err = c.callError(ctx, err)
		cancel()
		return nil, err
	}
	return &Conn{c: c, ctx: ctx, cancel: cancel, call: call}, nil
}

// Read implements io.Reader.
func (n *Conn) Read(b []byte) (int, error) {
	for len(n.rest) == 0 && n.err == nil {
		n.rest, n.err = n.receive()
	}
	if len(n.rest) == 0 {
		return 0, n.err
	}
	k := copy(b, n.rest)
	n.rest = n.rest[k:]
	return k, nil
}

func (n *Conn) receive() ([]byte, error) {
	m, err := n.call.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return nil, n.c.fail(fmt.Errorf("%w: a connection without its end", ErrProtocol))
	case err != nil:
		return nil, n.c.callError(n.ctx, err)
	case m.GetEof() != nil:
		return nil, io.EOF
	case m.GetConnected() != nil:
		return nil, n.c.fail(fmt.Errorf("%w: a connection began twice", ErrProtocol))
	}
	return m.GetData(), nil
}

// Write implements io.Writer. It waits while the server doesn't read.
func (n *Conn) Write(b []byte) (int, error) {
	for sent := 0; sent < len(b); {
		part := b[sent:min(len(b), sent+agentpb.ChunkBytes)]
		if err := n.call.Send(&agentpb.ConnectRequest{Request: &agentpb.ConnectRequest_Data{Data: part}}); err != nil {
			return sent, io.ErrClosedPipe // Read has the call's error
		}
		sent += len(part)
	}
	return len(b), nil
}

// CloseWrite tells the server that no more comes.
func (n *Conn) CloseWrite() error { return n.call.CloseSend() }

// Close ends the connection.
func (n *Conn) Close() error {
	n.cancel()
	return nil
}
