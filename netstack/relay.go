package netstack

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Sizes of the relay's buffers in bytes. Each read and write is a system call
// or a frame, and those are the cost: up to a frame's worth up, several down.
const (
	relayUp   = 64 << 10
	relayDown = 256 << 10
)

// upBuffers and downBuffers are lent while bytes pass, so that an idle
// connection holds none. One whose other end takes nothing holds its buffer:
// smallBuffers are for the many.
var (
	upBuffers    = bufferPool(relayUp)
	downBuffers  = bufferPool(relayDown)
	smallBuffers = bufferPool(smallBuffer)
)

func bufferPool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

// RelayOptions tune Relay; the zero value is complete.
type RelayOptions struct {
	// Up and Down, if not nil, count bytes from and to the guest as they pass.
	Up, Down *atomic.Int64
	// Admit, if not nil, is asked before n bytes of the guest's leave for
	// upstream; an error resets both sides and is returned by Relay.
	Admit func(n int) error
}

// relay is one call of Relay.
type relay struct {
	guest    *TCPConn
	upstream net.Conn
	opts     RelayOptions

	ups, downs *sync.Pool // buffers

	up, down  atomic.Int64
	resetOnce sync.Once
	cause     error // why resetOnce ran; later errors only echo it
}

// Relay copies both ways between the guest and upstream until both sent FIN,
// one sent RST, or ctx ends; both are closed when it returns. A FIN is passed
// on as a half-close, an RST and every other error as RST. up and down are
// bytes from and to the guest; err is nil after two FINs.
func Relay(ctx context.Context, guest *TCPConn, upstream net.Conn, opts RelayOptions) (up, down int64, err error) {
	r := &relay{guest: guest, upstream: upstream, opts: opts, ups: upBuffers, downs: downBuffers}
	if guest.flow.small {
		r.ups, r.downs = smallBuffers, smallBuffers
	}
	stop := context.AfterFunc(ctx, func() { r.reset(ctx.Err()) })
	upDone := make(chan struct{})
	go func() { defer close(upDone); r.copyUp(ctx) }()
	r.copyDown()
	<-upDone
	stop() // closing ends the flow's context, which may be this one
	_ = guest.Close()
	_ = upstream.Close()
	r.resetOnce.Do(func() {})
	return r.up.Load(), r.down.Load(), r.cause
}

// reset ends both sides with RST because of err.
func (r *relay) reset(err error) {
	r.resetOnce.Do(func() {
		r.cause = err
		r.guest.Reset()
		resetConn(r.upstream)
	})
}

// copyUp carries the guest's bytes to upstream, and its FIN or RST. Nothing that the guest sent after ctx's end leaves: the
// reset comes from a goroutine of its own, and may be later.
func (r *relay) copyUp(ctx context.Context) {
	for {
		if err := r.guest.waitReadable(); err != nil {
			r.reset(err)
			return
		}
		buf := r.ups.Get().(*[]byte) // the pool holds nothing else
		n, err := r.guest.Read(*buf)
		if n > 0 && ctx.Err() != nil {
			err = ctx.Err()
		} else if n > 0 && r.opts.Admit != nil {
			err = errors.Join(err, r.opts.Admit(n))
		}
		if n > 0 && err == nil {
			n, err = r.upstream.Write((*buf)[:n])
			r.count(&r.up, r.opts.Up, n)
		}
		r.ups.Put(buf)
		if err != nil {
			r.finish(err, r.upstream)
			return
		}
	}
}

// copyDown carries upstream's bytes to the guest, and its FIN or RST.
func (r *relay) copyDown() {
	src := newLazyReader(r.upstream, r.downs)
	for {
		buf, n, err := src.read()
		if n > 0 {
			var werr error
			n, werr = r.guest.Write((*buf)[:n])
			r.count(&r.down, r.opts.Down, n)
			if werr != nil {
				err = werr
			}
		}
		src.done(buf)
		if err != nil {
			r.finish(err, r.guest)
			return
		}
	}
}

func (r *relay) count(own, shared *atomic.Int64, n int) {
	own.Add(int64(n))
	if shared != nil {
		shared.Add(int64(n))
	}
}

// closeWriter is what TCP, TLS and Unix connections have.
type closeWriter interface{ CloseWrite() error }

// finish passes the end of one direction on to the other side.
func (r *relay) finish(err error, to net.Conn) {
	if errors.Is(err, io.EOF) {
		c, ok := to.(closeWriter)
		if !ok {
			return
		}
		if err = c.CloseWrite(); err == nil {
			return
		}
	}
	r.reset(err)
}

// resetConn closes with RST where the connection knows how to.
func resetConn(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
