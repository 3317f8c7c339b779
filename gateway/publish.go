package gateway

import (
	"context"
	"errors"
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
// their other end. Each is a line of the audit log when it ends. What the guest sends counts as egress. The end of ctx,
// or of the gateway, ends l and them; Publish returns then.
func Publish(ctx context.Context, g *Gateway, l net.Listener, port uint16) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(g.ctx, cancel) //nolint:contextcheck // the gateway's own life, beside the caller's
	defer stop()
	closed := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer closed()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		select {
		case g.inbound <- struct{}{}:
		case <-ctx.Done():
			return
		}
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			<-g.inbound
			cancel() // who closed l, ended what it accepted
			return
		}
		if err != nil { // such as too many open files: others may end meanwhile
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			<-g.inbound
			continue
		}
		serving.Go(func() {
			defer func() { <-g.inbound }()
			g.emit(g.carryIn(ctx, client, port))
		})
	}
}

// carryIn carries one connection to the guest and returns what the audit log says of it.
func (g *Gateway) carryIn(ctx context.Context, client net.Conn, port uint16) audit.Event {
	begin := time.Now()
	ev := audit.Event{Kind: audit.PortFlow, Proto: egress.TCP.String(), Port: port, Action: egress.Allow.String()}
	if a, err := netip.ParseAddrPort(client.RemoteAddr().String()); err == nil {
		ev.Client = a
	}
	dial, cancel := context.WithTimeout(ctx, publishedDial)
	guest, err := g.stack.DialGuest(dial, port)
	cancel()
	if err != nil {
		ev.Message = "the guest doesn't answer on this port: " + err.Error()
		if errors.Is(err, syscall.ECONNREFUSED) {
			ev.Message += "; does its server listen on 127.0.0.1 only? Let it listen on 0.0.0.0"
		}
		resetClose(client)
		return ev
	}
	ev.BytesUp, ev.BytesDown, err = netstack.Relay(ctx, guest, client, netstack.RelayOptions{Admit: g.budget.take})
	if errors.Is(err, errBudget) {
		ev.Message = err.Error()
	}
	ev.Duration = time.Since(begin)
	return ev
}

// resetClose closes with a reset where the kind of connection has one.
func resetClose(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
