package secretproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
)

// errName is a handshake for a name that this connection isn't about.
var errName = errors.New("the SNI is not a name that is pinned to this address")

// guestTLS is the one configuration for all guest connections, so that session
// tickets work across them.
func (p *Proxy) guestTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// TLS 1.2 with AEADs only: every client that knows them has done for ten
		// years, and CBC is a finding in any scanner (LUCKY13).
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
		},
		NextProtos: []string{"h2", "http/1.1"},
		// Not GetCertificate alone: TLS 1.3 doesn't ask it when a session is
		// resumed.
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return nil, named(hello) },
		GetCertificate:     p.certificate,
		KeyLogWriter:       p.cfg.KeyLog,
	}
}

// handshake opens the guest's TLS and returns what was agreed by ALPN; nil if that failed. It is a function of its own,
// since ServeTLS waits as long as the connection lives: with the state of the handshake in its frame, its stack would keep
// 8 KiB where 4 do.
//
//go:noinline
func (p *Proxy) handshake(ctx context.Context, guest *guestConn) (conn *tls.Conn, protocol string) {
	conn = tls.Server(guest, p.tlsConfig)
	_ = guest.SetDeadline(p.cfg.now().Add(handshakeTimeout))
	if err := conn.HandshakeContext(ctx); err != nil {
		handshakeFailed(p, guest, err)
		return nil, ""
	}
	_ = guest.SetDeadline(time.Time{})
	return conn, conn.ConnectionState().NegotiatedProtocol
}

// named sets the name that the connection is for. The SNI must be a name that dnsguard pinned
// to the address the guest connected to (invariant 7); none is needed only where no name is
// pinned, at a literal address.
func named(hello *tls.ClientHelloInfo) error {
	guest := guestOf(hello.Conn)
	if guest == nil {
		return errName
	}
	if hello.ServerName == "" {
		if len(guest.flow.Pinned) > 0 {
			return fmt.Errorf("%w: the client sent none", errName)
		}
		return nil
	}
	name, err := hostname.Parse(hello.ServerName)
	if err != nil {
		return fmt.Errorf("%w: %w", errName, err)
	}
	if !guest.pinned(name) {
		return errName
	}
	guest.name = name
	return nil
}

// certificate picks the leaf for the name that was noted, or for the address.
func (p *Proxy) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	guest := guestOf(hello.Conn)
	switch {
	case guest == nil:
		return nil, errName
	case guest.name.IsZero():
		return p.cfg.CA.ForAddr(guest.flow.Dst.Addr())
	}
	return p.cfg.CA.ForName(guest.name)
}

func handshakeFailed(p *Proxy, guest *guestConn, err error) {
	p.counters.refused.Add(1)
	reason := egress.ReasonUnreadable
	if errors.Is(err, errName) {
		reason = egress.ReasonHostMismatch
	}
	e := guest.event(p.cfg.Sandbox)
	e.Action, e.Reason = egress.Deny.String(), reason.String()
	e.Message = "the guest's TLS handshake did not end: " + handshakeCause(err)
	p.cfg.Audit.Emit(e)
}

// handshakeCause returns sentences of our own: those of crypto/tls may quote the guest, such as its list of protocols.
func handshakeCause(err error) string {
	var record tls.RecordHeaderError
	var alert *net.OpError
	switch {
	case errors.Is(err, errName):
		return errName.Error()
	case errors.As(err, &record):
		return "its bytes are not TLS"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "it took too long"
	case errors.As(err, &alert) && alert.Op == tlsAlertOp:
		return alert.Error()
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET):
		return "the guest ended it"
	}
	return "the two sides have no version, cipher or protocol in common, or a message of the guest's is malformed"
}

// connectionRefused audits a connection that the budget has no room for. It is closed without an answer.
func (p *Proxy) connectionRefused(guest *guestConn) {
	p.counters.refused.Add(1)
	fault := memoryFull()
	e := guest.event(p.cfg.Sandbox)
	e.Action, e.Reason, e.Message, e.Status = egress.Deny.String(), fault.code, fault.message, fault.status
	p.cfg.Audit.Emit(e)
}
