package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/msb-project/msb/dnsguard"
	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/secretproxy"
)

// ProxyPort is where the gateway's own addresses take requests as an HTTP proxy.
const ProxyPort = session.ProxyPort

// HandleTCP implements netstack.Handler.
func (g *Gateway) HandleTCP(ctx context.Context, t *netstack.TCPFlow) {
	ctx, f, step := g.open(ctx, egress.TCP, t.Src(), t.Dst())
	defer f.forget()
	x := &tcpExecutor{flow: f, ctx: ctx, syn: t}
	defer x.close()
	for more := true; more; {
		f.verdicts(&step)
		step, more = x.do(&step) //nolint:contextcheck // x holds it
	}
}

// tcpExecutor carries out the steps of a connection's session.
type tcpExecutor struct {
	*flow
	ctx   context.Context // it lives as long as its HandleTCP
	syn   *netstack.TCPFlow
	guest *netstack.TCPConn // nil until the handshake is complete
	stop  func() bool
	// asked says that the request to the explicit proxy was read, tunnel that a CONNECT waits for its answer.
	asked, tunnel bool
	// first holds the bytes that were read so far; whoever serves the connection gets them.
	first    []byte
	upstream net.Conn
	done     func(up, down int64, err error)
}

// do does one step and returns the next; false ends the connection.
func (x *tcpExecutor) do(step *session.Step) (session.Step, bool) {
	switch step.Action {
	case session.NeedBytes:
		return x.read(), true
	case session.NeedNames:
		return x.resolve(step.Name), true
	case session.Wait:
		return x.wait(), true
	case session.Dial:
		return x.dial(step.Via), true
	case session.Relay:
		x.relay()
	case session.Inspect:
		x.inspect()
	case session.ToDNS:
		x.serveDNS()
	case session.Refuse:
		x.refuse(step)
	case session.Reject, session.Drop, session.Continue, session.End:
		x.reset()
	}
	return session.Step{}, false
}

// close removes the hook that do set on the context.
func (x *tcpExecutor) close() {
	if x.stop != nil {
		x.stop()
	}
}

// accept completes the handshake, and answers a CONNECT that waits for it.
func (x *tcpExecutor) accept() error {
	if x.guest == nil {
		guest, err := x.syn.Accept()
		if err != nil {
			return err
		}
		x.guest, x.stop = guest, context.AfterFunc(x.ctx, guest.Reset)
	}
	if !x.tunnel {
		return nil
	}
	x.tunnel = false
	_ = x.guest.SetWriteDeadline(time.Now().Add(peekTimeout))
	_, err := io.WriteString(x.guest, "HTTP/1.1 200 Connection established\r\n\r\n")
	_ = x.guest.SetWriteDeadline(time.Time{})
	if err != nil {
		x.guest.Reset()
	}
	return err
}

func (x *tcpExecutor) reset() {
	if x.guest == nil {
		x.syn.Reject()
		return
	}
	x.guest.Reset()
}

// read reads until the session knows enough, for at most peekTimeout.
func (x *tcpExecutor) read() session.Step {
	x.first = nil
	if x.accept() != nil {
		return x.data(nil, session.Gone) // there is no connection to say anything on
	}
	_ = x.guest.SetReadDeadline(time.Now().Add(peekTimeout))
	defer func() { _ = x.guest.SetReadDeadline(time.Time{}) }()
	buf := make([]byte, 4<<10)
	for {
		n, err := x.guest.Read(buf)
		x.first = append(x.first, buf[:n]...)
		end := session.More
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.EOF):
			end = session.Silent
		case err != nil:
			end = session.Gone
		}
		step := x.data(x.first, end)
		if x.takeRequest() || step.Action != session.NeedBytes {
			return step
		}
	}
}

// takeRequest reports whether the request to the explicit proxy has just been read, and replaces it by the request
// that the server gets.
func (x *tcpExecutor) takeRequest() bool {
	x.mu.Lock()
	request, _ := x.session.Proxied()
	x.mu.Unlock()
	if request == nil || x.asked {
		return false
	}
	x.asked, x.tunnel = true, request.Connect
	if request.Connect {
		x.first = nil
	} else {
		x.first = append(request.Head, x.first[request.Length:]...)
	}
	return true
}

// resolve asks the sandbox's own resolver, under its limits, for a client of the explicit proxy.
func (x *tcpExecutor) resolve(name hostname.Name) session.Step {
	ctx, cancel := context.WithTimeout(x.ctx, dialTimeout)
	defer cancel()
	addrs, err := x.gateway.guard.Resolve(ctx, name)
	var refused *dnsguard.RefusedError
	if !errors.As(err, &refused) {
		return x.resolved(addrs, err)
	}
	step := x.resolved(nil, &session.NameError{Reason: refused.Reason, Err: err})
	x.mu.Lock()
	request, proxy := x.session.Proxied()
	x.mu.Unlock()
	j := x.judged() // the audit line of the name is the resolver's; the capture has one here too
	x.gateway.cfg.Capture.refused(request, j.Flow.Src, proxy, &j.Verdict)
	return step
}

// dial dials before the guest's handshake is completed, so that it sees a refused or dead destination as such.
func (x *tcpExecutor) dial(via bool) session.Step {
	x.done = x.admit(x.ctx)
	j := x.judged()
	err := x.use(j.Verdict.Rule)
	if err == nil {
		x.upstream, err = x.gateway.dial(x.ctx, j, via)
	}
	if err != nil {
		x.done(0, 0, err)
	}
	step := x.dialed(err)
	if err == nil && step.Action != session.Relay { // a reload ended it meanwhile
		x.done(0, 0, x.upstream.Close())
	}
	return step
}

func (x *tcpExecutor) relay() {
	err := x.accept()
	if err == nil && len(x.first) > 0 {
		if err = x.gateway.budget.take(len(x.first)); err == nil {
			_, err = x.upstream.Write(x.first)
		}
	}
	if err != nil {
		x.reset()
		x.done(0, 0, errors.Join(err, x.upstream.Close()))
		return
	}
	up, down, err := netstack.Relay(x.ctx, x.guest, x.upstream, netstack.RelayOptions{Admit: x.gateway.budget.take})
	x.done(up+int64(len(x.first)), down, err)
}

func (x *tcpExecutor) inspect() {
	done := x.admit(x.ctx)
	if err := x.use(x.judged().Verdict.Rule); err != nil {
		x.reset()
		done(0, 0, err)
		return
	}
	if err := x.accept(); err != nil {
		done(0, 0, err)
		return
	}
	conn := &inspectedConn{Conn: x.guest, first: x.first, revoked: func() bool { return x.ctx.Err() != nil }}
	ctx := secretproxy.WithFlow(x.ctx, x.id, x.flow)
	if f := x.judged().Flow; f.App == egress.AppHTTP {
		x.gateway.proxy.ServeHTTP(ctx, conn, f)
	} else {
		x.gateway.proxy.ServeTLS(ctx, conn, f)
	}
	x.stop()
	_ = conn.Close()
	done(conn.up.Load(), conn.down.Load(), nil)
}

func (x *tcpExecutor) serveDNS() {
	if x.accept() != nil {
		x.gateway.guard.Unread("tcp", x.syn.Src(), x.syn.Dst())
		return
	}
	defer func() { _ = x.guest.Close() }()
	x.gateway.guard.ServeTCP(x.ctx, x.guest)
}

// refuse answers in the client's own protocol, and ends the connection.
func (x *tcpExecutor) refuse(step *session.Step) {
	answer := step.Refusal.Bytes()
	if len(answer) == 0 || x.guest == nil {
		x.reset()
		return
	}
	_ = x.guest.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = x.guest.Write(answer)
	hangUp(x.guest)
}

// hangUp ends a connection after an answer, once the client has read it.
func hangUp(guest *netstack.TCPConn) {
	_ = guest.CloseWrite()
	// Closing with unread bytes would turn the answer into a reset that overtakes it.
	_ = guest.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, guest)
	_ = guest.Close()
}
