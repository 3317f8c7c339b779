package agentclient

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strings"

	"github.com/msb-project/msb/agentd/agentpb"
)

// Back is what the guest's programs reach through a listener: something of the client's, beyond the host.
type Back = agentpb.Back

// What a listener may lead to.
const (
	BackAgent   = agentpb.Back_BACK_AGENT
	BackReverse = agentpb.Back_BACK_REVERSE
	BackX11     = agentpb.Back_BACK_X11
	// BackChildren is for the supervisor itself.
	BackChildren = agentpb.Back_BACK_CHILDREN
)

// ListenOptions say where programs of the guest can connect to the host.
type ListenOptions struct {
	Back Back
	// User owns the socket of BackAgent and BackChildren, as in ExecOptions.
	User string
	// At is a loopback address and a port, 0 for any; not for sockets.
	At netip.AddrPort
}

// Listener accepts connections of programs of the guest.
type Listener struct {
	// Path is the socket's in the guest, if it is one; Port is the port of others.
	Path string
	Port uint16

	c      *Client
	ctx    context.Context // of the call, which is the listener
	cancel context.CancelFunc
	call   agentpb.Connections_ListenClient
}

// Listen lets programs of the guest connect to the host, until ctx ends or the listener is closed; its connections end with
// it. ErrRefused if the guest can't listen there. Only the process that owns the machine can.
func (c *Client) Listen(ctx context.Context, o ListenOptions) (*Listener, error) {
	ctx, cancel := context.WithCancel(ctx)
	r := &agentpb.ListenRequest{Back: o.Back, User: o.User}
	if o.At.IsValid() {
		r.Address, r.Port = o.At.Addr().String(), uint32(o.At.Port())
	}
	call, err := c.conns.Listen(ctx, r)
	var first *agentpb.ListenResponse
	if err == nil {
		first, err = call.Recv()
	}
	if err != nil {
		err = c.callError(ctx, err)
		cancel()
		return nil, err
	}
	l := &Listener{Path: first.GetListening().GetPath(), Port: uint16(first.GetListening().GetPort()), c: c, ctx: ctx, cancel: cancel, call: call}
	if !l.sound(o, first.GetListening()) {
		cancel()
		return nil, c.fail(fmt.Errorf("%w: a listener elsewhere", ErrProtocol))
	}
	return l, nil
}

// sound reports whether the guest listens where it was asked to. It checks a path too, since the path becomes a variable of
// the guest's programs.
func (l *Listener) sound(o ListenOptions, first *agentpb.Listening) bool {
	if o.Back == BackAgent || o.Back == BackChildren {
		const longest = 107 // sun_path of unix(7)
		return path.IsAbs(l.Path) && len(l.Path) <= longest && !strings.ContainsRune(l.Path, 0) && first.GetPort() == 0
	}
	return l.Path == "" && l.Port != 0 && uint32(l.Port) == first.GetPort() && (o.At.Port() == 0 || o.At.Port() == l.Port)
}

// Accept waits for a connection and returns it with the address of the guest's program; that of a Unix socket's is invalid.
func (l *Listener) Accept() (*Conn, netip.AddrPort, error) {
	for {
		m, err := l.call.Recv()
		if err != nil {
			return nil, netip.AddrPort{}, l.c.callError(l.ctx, err)
		}
		a := m.GetAccepted()
		if a.GetId() == 0 {
			return nil, netip.AddrPort{}, l.c.fail(fmt.Errorf("%w: a listener that accepted nothing", ErrProtocol))
		}
		conn, err := l.c.connect(l.ctx, &agentpb.ConnectStart{Accepted: a.GetId()})
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrBusy) {
			continue // the program has gone, or there are too many connections
		}
		if err != nil {
			return nil, netip.AddrPort{}, err
		}
		addr, _ := netip.ParseAddr(a.GetAddress())                                   // invalid if the guest names none
		return conn, netip.AddrPortFrom(addr.WithZone(""), uint16(a.GetPort())), nil // a zone may be any text
	}
}

// Close ends the listener and its connections.
func (l *Listener) Close() error {
	l.cancel()
	return nil
}
