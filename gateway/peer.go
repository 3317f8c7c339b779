package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

var (
	errPeerDatagrams = errors.New("another sandbox is reached over TCP only")
	errNoPeers       = errors.New("there are no other sandboxes here")
	errPeerRefused   = errors.New("its policy doesn't let this sandbox in: it needs [[ingress.allow]] with sandboxes and ports")
	errPeerBound     = errors.New("too many connections to its ports")
)

// dialSandbox opens the way to another sandbox's port, which [hosts] names. That one's gateway judges who comes.
func (g *Gateway) dialSandbox(ctx context.Context, network string, t policies.Target) (net.Conn, error) {
	switch {
	case network != "tcp":
		return nil, errPeerDatagrams
	case g.cfg.DialSandbox == nil:
		return nil, errNoPeers
	}
	if err := g.budget.takePacket(0); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := g.cfg.DialSandbox(ctx, t.Sandbox, t.Port)
	if err != nil {
		return nil, err
	}
	return peerConn(c), nil
}

// resettableConn is a connection to another sandbox's gateway. A Unix socket knows no RST: an end of both ways before ours
// has ended is one. Otherwise an upload that was cut off would look complete.
type resettableConn struct {
	*net.UnixConn
	raw   syscall.RawConn
	ended atomic.Bool // our way
}

// peerConn is a connection between two gateways on which resets are seen.
func peerConn(c net.Conn) net.Conn {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return c
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return c
	}
	return &resettableConn{UnixConn: u, raw: raw}
}

// CloseWrite ends our way.
func (c *resettableConn) CloseWrite() error {
	c.ended.Store(true)
	return c.UnixConn.CloseWrite()
}

// Read returns io.EOF for an orderly end only.
func (c *resettableConn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	if errors.Is(err, io.EOF) && !c.ended.Load() && hungUp(c.raw) {
		return n, &net.OpError{Op: "read", Net: "unix", Err: syscall.ECONNRESET}
	}
	return n, err
}

// ServePeer carries a connection of another sandbox to a TCP port of g's guest, which sees the gateway's address as its
// other end. The policy says which sandboxes may connect to which ports. answer is called once, before any byte is carried:
// with why it is refused, or nil once the guest has accepted. The connection is a line of the audit log, and ends with ctx
// or the gateway.
func ServePeer(ctx context.Context, g *Gateway, client net.Conn, from string, port uint16, answer func(error) error) {
	ctx, cancel := within(ctx, g.ctx)
	defer cancel()
	client = peerConn(client)
	defer func() { _ = client.Close() }()
	judge := func() egress.Verdict { return egress.AdmitSandbox(g.policy.Load(), from, port) }
	ev, ok := begin(judge(), audit.Event{Proto: egress.TCP.String(), Peer: from, Port: port})
	if !ok {
		ev.Message = "no rule of [[ingress.allow]] lets this sandbox connect to the port"
		g.floods.Emit(ev)
		_ = answer(errPeerRefused)
		return
	}
	select {
	case g.inbound.slots <- struct{}{}:
		defer func() { <-g.inbound.slots }()
	default:
		ev.Action, ev.Rule, ev.Reason, ev.Message = egress.Deny.String(), "", egress.ReasonLimit.String(), errPeerBound.Error()
		g.floods.Emit(ev)
		_ = answer(errPeerBound)
		return
	}
	ctx, done := g.inbound.follow(ctx, judge, connThere(client))
	defer done()
	started := time.Now()
	defer func() { g.emit(ev) }()
	guest, err := g.inbound.dialBounded(ctx, &ev)
	if err != nil {
		_ = answer(err)
		return
	}
	if err := answer(nil); err != nil {
		guest.Reset()
		ev.Message = "the other sandbox has gone: " + err.Error()
		return
	}
	g.inbound.relay(ctx, client, guest, &ev, started)
}
