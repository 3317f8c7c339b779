package gateway

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/clienthello"
	"github.com/msb-project/msb/egress/httphead"
	"github.com/msb-project/msb/netstack"
)

// spoken is what a client said first.
type spoken struct {
	app   egress.App
	hello clienthello.Hello
	host  httphead.Head
	err   error // the bytes are TLS or HTTP but can't be read without guessing
}

// apply writes what was said into the flow, at StageName.
func (s spoken) apply(f *egress.Flow) {
	f.Stage, f.App = egress.StageName, s.app
	switch s.app {
	case egress.AppTLS:
		f.Name, f.ECH = s.hello.ServerName, s.hello.ECH
	case egress.AppHTTP:
		f.Name = s.host.Host
	case egress.AppUnknown, egress.AppOpaque:
	}
}

// readFirst reads until the first bytes are understood, at most clienthello.MaxBytes and for at most
// peekTimeout. The bytes are returned whatever they are.
func readFirst(c net.Conn) ([]byte, spoken) {
	_ = c.SetReadDeadline(time.Now().Add(peekTimeout))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	var (
		got bytes.Buffer
		buf = make([]byte, 4<<10)
	)
	for {
		n, err := c.Read(buf)
		got.Write(buf[:n])
		said, more := understand(got.Bytes())
		switch {
		case !more:
			return got.Bytes(), said
		case err != nil:
			return got.Bytes(), cutShort(got.Len(), said.app, err)
		case got.Len() > clienthello.MaxBytes:
			return got.Bytes(), spoken{app: said.app, err: clienthello.ErrTooLong}
		}
	}
}

// cutShort judges a client that stopped in the middle of what began like app, or said nothing at all.
func cutShort(n int, app egress.App, err error) spoken {
	switch {
	case n == 0 && (errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, io.EOF)):
		return spoken{app: egress.AppOpaque}
	case app == egress.AppUnknown:
		app = egress.AppOpaque
	}
	return spoken{app: app, err: err}
}

// understand reports what b is; more asks for more bytes.
func understand(b []byte) (said spoken, more bool) {
	if len(b) == 0 {
		return spoken{}, true
	}
	hello, err := clienthello.Parse(b)
	switch {
	case err == nil:
		return spoken{app: egress.AppTLS, hello: hello}, false
	case errors.Is(err, clienthello.ErrIncomplete):
		return spoken{app: egress.AppTLS}, true
	case !errors.Is(err, clienthello.ErrNotTLS):
		return spoken{app: egress.AppTLS, err: err}, false
	}
	head, err := httphead.Parse(b)
	switch {
	case err == nil:
		return spoken{app: egress.AppHTTP, host: head}, false
	case errors.Is(err, httphead.ErrIncomplete):
		return spoken{app: egress.AppHTTP}, true
	case errors.Is(err, httphead.ErrNotHTTP):
		return spoken{app: egress.AppOpaque}, false
	}
	return spoken{app: egress.AppHTTP, err: err}, false
}

// accessDenied is a fatal TLS alert 49 (RFC 8446, section 6.2): what a client shows as "access denied"
// and not as a broken network.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// httpDeniedBody and httpDenied answer plain HTTP that was not understood well enough for secretproxy
// to answer it.
const httpDeniedBody = `{"error":"denied by the sandbox's policy","reason":"host_mismatch"}` + "\n"

var httpDenied = []byte("HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: " +
	strconv.Itoa(len(httpDeniedBody)) + "\r\nConnection: close\r\n\r\n" + httpDeniedBody)

// refuse tells the client why in its own protocol, and ends the connection.
func refuse(guest *netstack.TCPConn, app egress.App) {
	_ = guest.SetWriteDeadline(time.Now().Add(time.Second))
	switch app {
	case egress.AppTLS:
		_, _ = guest.Write(accessDenied)
	case egress.AppHTTP:
		_, _ = guest.Write(httpDenied)
	case egress.AppUnknown, egress.AppOpaque:
		guest.Reset()
		return
	}
	hangUp(guest)
}

// hangUp ends a connection after an answer, once the client has read it.
func hangUp(guest *netstack.TCPConn) {
	_ = guest.CloseWrite()
	_, _ = io.Copy(io.Discard, &deadlined{guest, time.Now().Add(time.Second)})
	_ = guest.Close()
}

// deadlined reads what is left until a moment: closing with unread bytes would turn the answer into a
// reset that overtakes it.
type deadlined struct {
	net.Conn
	until time.Time
}

// Read implements io.Reader.
func (d *deadlined) Read(p []byte) (int, error) {
	_ = d.SetReadDeadline(d.until)
	return d.Conn.Read(p)
}

// counted replays what was read ahead and counts payload both ways.
type counted struct {
	net.Conn
	first    []byte
	up, down atomic.Int64
	// revoked reports that the flow was ended from this side; nil for never.
	revoked func() bool
}

// Read implements net.Conn.
func (c *counted) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		c.up.Add(int64(n))
		return n, nil
	}
	n, err := c.Conn.Read(p)
	c.up.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.down.Add(int64(n))
	return n, err
}

// Close resets a flow that was revoked: whoever serves it closes it as soon as its context ends, which
// to the client would look like the end of an answer.
func (c *counted) Close() error {
	if c.revoked != nil && c.revoked() {
		resetOrClose(c.Conn)
		return nil
	}
	return c.Conn.Close()
}

// CloseWrite passes the half-close on.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
