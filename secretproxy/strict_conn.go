package secretproxy

import (
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/secretproxy/memory"
)

// strictConn lets the bytes of an HTTP/1 connection through to net/http only
// while they are a sequence of requests that every parser reads alike. It
// changes none: the first byte that can't be right ends reading, and the answer
// that net/http then gives becomes one that says why.
//
// net/http alone would take bare line feeds, folded lines, Content-Length
// beside chunked and absolute-form targets, and sort them out. The upstream
// would get a clean request; but a guest that sends such things is trying
// something, and no value is put into it (invariant 9).
type strictConn struct {
	net.Conn
	proxy *Proxy
	guest *guestConn
	check headCheck
	err   error
	// held is what has come of a head that is not whole, and early.
	held memory.Hold
	// stand is what is left of refusedHead to hand on before err.
	stand string

	// tunnel is set once a 101 was written and net/http has let go of the
	// connection; early is what came behind the upgrade's request before.
	tunnel bool
	early  []byte

	half halfClose
}

// maxEarly bounds what is kept of the other protocol before the answer to an
// upgrade; clients wait for the 101 (RFC 9110, section 7.8).
const maxEarly = 64 << 10

// refusedHead stands for a head that was refused. Between two requests net/http waits for four bytes, and ends
// the connection without a word if an error comes first; an error behind them it answers.
const refusedHead = "GET "

// errEarly ends a connection on which more came.
var errEarly = errors.New("the client sent too much after its request for an upgrade, before the answer")

var _ net.Conn = (*strictConn)(nil)

func newStrictConn(p *Proxy, guest *guestConn, inner net.Conn) *strictConn {
	return &strictConn{Conn: inner, proxy: p, guest: guest, held: memory.Hold{Budget: p.memory}}
}

// Read implements net.Conn.
func (c *strictConn) Read(b []byte) (int, error) {
	switch {
	case c.err != nil && c.stand != "":
		n := copy(b, c.stand)
		c.stand = c.stand[n:]
		return n, nil
	case c.err != nil:
		return 0, c.err
	case c.tunnel && len(c.early) > 0:
		n := copy(b, c.early)
		c.early = c.early[n:]
		return n, nil
	case c.tunnel:
		return c.Conn.Read(b)
	case c.check.held:
		return 0, c.hold()
	}
	n, err := c.Conn.Read(b)
	if n == 0 && err != nil && c.check.betweenRequests() {
		return 0, c.awaitAnswer(err)
	}
	good, checkErr := c.check.feed(b[:n])
	if checkErr == nil && !c.held.Set(2*int64(c.check.total)) {
		good, checkErr = 0, &headError{status: http.StatusServiceUnavailable, code: "memory", message: memory.ErrFull.Error()}
	}
	if checkErr != nil {
		c.err = checkErr
		c.refused(checkErr)
		if c.check.inHead() {
			c.stand = refusedHead
		}
		if good == 0 {
			return c.Read(b)
		}
		// What came before the fault is handed on: the requests in it are
		// whole.
		return good, nil
	}
	if good < n {
		c.early = append(c.early, b[good:n]...)
		return good, nil
	}
	return n, err
}

// hold keeps what comes behind a request with an Upgrade field, until the
// connection fails or net/http stops reading: nothing of it is HTTP for anyone
// until openTunnel (attack: a second, unchecked request behind an upgrade that
// isn't one).
func (c *strictConn) hold() error {
	piece := make([]byte, 2<<10)
	for len(c.early) < maxEarly && c.held.Set(2*int64(len(c.early)+len(piece))) {
		n, err := c.Conn.Read(piece)
		c.early = append(c.early, piece[:n]...)
		if err != nil {
			return err
		}
	}
	return errEarly
}

// openTunnel makes the connection one of bytes. Only for a hijacked one that
// got its 101: no Read is under way then.
func (c *strictConn) openTunnel() { c.tunnel = true }

// Write implements net.Conn. What net/http writes while no handler runs is its own answer to a head that it can't
// read, or for which Read gave it an error: the guest gets one that says why.
func (c *strictConn) Write(b []byte) (int, error) {
	if c.guest.handled.Load() {
		n, err := c.Conn.Write(b)
		if n > 0 {
			c.half.wrote()
		}
		return n, err
	}
	var fault *headError
	if !errors.As(c.err, &fault) {
		fault = badHead("malformed", "its target, its Host or another field is malformed")
		c.refused(fault)
	}
	r := refusal{status: fault.answer(), code: fault.code, message: fault.message}
	if _, err := c.Conn.Write(r.raw()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// SetReadDeadline implements net.Conn.
func (c *strictConn) SetReadDeadline(t time.Time) error {
	c.half.deadline(t)
	return c.Conn.SetReadDeadline(t)
}

// Close implements net.Conn.
func (c *strictConn) Close() error {
	c.held.Release()
	return c.Conn.Close()
}

// CloseWrite is what net/http calls so that the guest can read an answer that
// was sent before its request ended.
func (c *strictConn) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return nil
}

func (c *strictConn) refused(err error) {
	c.proxy.counters.refused.Add(1)
	e := c.guest.event(c.proxy.cfg.Sandbox)
	e.Action, e.Reason = egress.Deny.String(), egress.ReasonUnreadable.String()
	e.Message = err.Error()
	e.Status = http.StatusBadRequest
	var fault *headError
	if errors.As(err, &fault) && fault.status != 0 {
		e.Status, e.Reason = fault.status, fault.code
	}
	c.proxy.cfg.Audit.Emit(e)
}
