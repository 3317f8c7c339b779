package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/msb-project/msb/audit"
)

const (
	// maxPublished bounds the connections to one published port at a time; others wait in the listener's queue.
	maxPublished = 1024
	// publishedDial bounds how long the guest may take to accept one.
	publishedDial = 10 * time.Second
)

// Publish carries the connections that l accepts to a TCP port of g's guest, which sees the gateway's address as
// their other end. Each is a line of the audit log when it ends. It returns once l is closed and they have ended;
// the gateway's end closes l.
func Publish(g *Gateway, l net.Listener, port uint16) {
	stop := context.AfterFunc(g.ctx, func() { _ = l.Close() })
	defer stop()
	free := make(chan struct{}, maxPublished)
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		free <- struct{}{}
		client, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files: others may end meanwhile
			select {
			case <-g.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			<-free
			continue
		}
		serving.Go(func() {
			defer func() { <-free }()
			g.emit(published(g, client, port))
		})
	}
}

// published carries one connection and returns what the audit log says of it.
func published(g *Gateway, client net.Conn, port uint16) audit.Event {
	begin := time.Now()
	ev := audit.Event{Kind: audit.PortFlow, Proto: "tcp", Port: port, Action: "allow"}
	if a, err := netip.ParseAddrPort(client.RemoteAddr().String()); err == nil {
		ev.Client = a
	}
	ctx, cancel := context.WithTimeout(g.ctx, publishedDial)
	guest, err := g.stack.DialGuest(ctx, port)
	cancel()
	if err != nil {
		ev.Message = "the guest doesn't answer on this port: " + err.Error() + "; does its server listen on 127.0.0.1 only? Let it listen on 0.0.0.0"
		resetClose(client)
		return ev
	}
	stop := context.AfterFunc(g.ctx, func() { _, _ = client.Close(), guest.Close() })
	defer stop()
	var down int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		down = oneWay(guest, client)
	}()
	ev.BytesUp = oneWay(client, guest)
	<-done
	ev.BytesDown = down
	_, _ = client.Close(), guest.Close()
	ev.Duration = time.Since(begin)
	return ev
}

// oneWay copies until from ends, and passes the end on; what breaks ends both ways.
func oneWay(to, from net.Conn) int64 {
	n, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return n
	}
	resetClose(to)
	resetClose(from)
	return n
}

// resetClose closes with a reset where the kind of connection has one.
func resetClose(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
