package mcp

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// maxStrangers bounds the connections that have not sent a request with the token. One more ends the oldest of them, so
	// that nobody without the token can use up the connections.
	maxStrangers = 64
	// strangerWait is how long such a connection may take to send one.
	strangerWait = 10 * time.Second
)

// gate is a listener that tracks the connections that have not sent a request with the token.
type gate struct {
	net.Listener
	most  int
	after func(time.Duration, func()) *time.Timer // time.AfterFunc, but in tests

	mu        sync.Mutex
	strangers []*visitor // the oldest first
}

func newGate(l net.Listener) *gate {
	return &gate{Listener: netutil.LimitListener(l, maxConns), most: maxStrangers, after: time.AfterFunc}
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	v := &visitor{Conn: c, gate: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.strangers) >= g.most {
		g.strangers[0].late.Reset(0) // in a goroutine: closing TLS may wait for the other side
		g.strangers = slices.Delete(g.strangers, 0, 1)
	}
	g.strangers = append(g.strangers, v)
	v.late = g.after(strangerWait, func() {
		if !v.known.Load() {
			_ = v.Close() // the other side gets no error
		}
	})
	return v, nil
}

// leave takes a connection out of the strangers.
func (g *gate) leave(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.strangers, v); i >= 0 {
		g.strangers = slices.Delete(g.strangers, i, i+1)
		v.late.Stop()
	}
}

// visitor is a connection.
type visitor struct {
	net.Conn
	gate  *gate
	late  *time.Timer
	known atomic.Bool // it has sent a request with the token
}

// Close implements net.Conn.
func (v *visitor) Close() error {
	v.gate.leave(v)
	return v.Conn.Close()
}

type visitorKey struct{}

// withVisitor is http.Server.ConnContext.
func withVisitor(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, visitorKey{}, c)
}

// known tells the gate that a connection has sent a request with the token.
func known(r *http.Request) {
	if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
		v.known.Store(true)
		v.gate.leave(v)
	}
}
