package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
)

// publishedDial bounds how long the guest may take to accept a connection.
const publishedDial = 10 * time.Second

// Publish carries the connections that l accepts to a TCP port of g's guest, which sees the gateway's address as
// their other end, or of a pod's port the client's; these go on when l is closed, as those of any server do. The policy says which clients may connect; those of this machine always may. Each is a line of the
// audit log: when it ends, or is refused. What the guest sends counts as egress. The end of ctx, or of the gateway, ends
// l and them; Publish returns then.
func Publish(ctx context.Context, g *Gateway, l net.Listener, port uint16) {
	ctx, cancel := within(ctx, g.ctx)
	defer cancel()
	closed := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer closed()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		select {
		case g.inbound.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			<-g.inbound.slots
			if !g.inbound.isPod() {
				cancel() // who closed l, ended what it accepted
			}
			return
		}
		if err != nil { // such as too many open files: others may end meanwhile
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			<-g.inbound.slots
			continue
		}
		ev, ok := g.inbound.event(egress.TCP, clientOf(client.RemoteAddr()), port)
		if !ok {
			<-g.inbound.slots
			resetClose(client)
			g.floods.Emit(ev)
			continue
		}
		serving.Go(func() {
			defer func() { <-g.inbound.slots }()
			g.inbound.carryIn(ctx, client, &ev)
			g.emit(ev)
		})
	}
}

// within is ctx, and ends with outer too.
func within(ctx, outer context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(outer, cancel)
	return ctx, func() { stop(); cancel() }
}

// carryIn carries one connection to the guest and completes what the audit log says of it.
func (i *inbound) carryIn(ctx context.Context, client net.Conn, ev *audit.Event) {
	begin := time.Now()
	ctx, done := i.follow(ctx, i.byAddress(egress.TCP, ev.Client.Addr()), connThere(client))
	defer done()
	guest, err := i.dialBounded(ctx, ev)
	if err != nil {
		resetClose(client)
		return
	}
	i.relay(ctx, client, guest, ev, begin)
}

// dialBounded is dialPublished, for as long as a guest may take. The audit line says why it failed.
func (i *inbound) dialBounded(ctx context.Context, ev *audit.Event) (*netstack.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, publishedDial)
	defer cancel()
	guest, err := i.dialPublished(ctx, ev.Client.Addr(), ev.Port)
	if err != nil {
		err = fmt.Errorf("the guest doesn't answer on this port: %w", err)
		ev.Message = err.Error()
	}
	return guest, err
}

// relay carries bytes between a client and the guest, and completes the audit line of a connection that began then.
func (i *inbound) relay(ctx context.Context, client net.Conn, guest *netstack.TCPConn, ev *audit.Event, begin time.Time) {
	var err error
	i.g.cfg.Capture.admitted(ev, clientOf(guest.LocalAddr()), clientOf(guest.RemoteAddr()))
	ev.BytesUp, ev.BytesDown, err = netstack.Relay(ctx, guest, client, netstack.RelayOptions{Admit: i.g.budget.take})
	switch {
	case errors.Is(err, errBudget):
		ev.Message = err.Error()
	case errors.Is(context.Cause(ctx), errIngress):
		ev.Message = errIngress.Error()
	}
	ev.Duration = time.Since(begin)
}

// dialPublished connects to a server of the guest: to one that listens on 127.0.0.1 only by way of the guest's agent.
func (i *inbound) dialPublished(ctx context.Context, client netip.Addr, port uint16) (*netstack.TCPConn, error) {
	guest, err := i.g.stack.DialGuest(ctx, i.source(client), port)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return guest, err
	}
	if !i.mayForward(client) {
		return nil, fmt.Errorf("%w; does its server listen on 127.0.0.1 only? Let it listen on 0.0.0.0", err)
	}
	by, forwardErr := i.g.cfg.Forward(ctx, egress.TCP, port)
	if forwardErr != nil {
		return nil, fmt.Errorf("%w; nor by 127.0.0.1: %w", err, forwardErr)
	}
	return i.g.stack.DialGuest(ctx, i.source(client), by)
}

// resetClose closes with a reset where the kind of connection has one.
func resetClose(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.Close()
}
