package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/msb-project/msb/policies"
)

// tlsConfig returns the settings for one server name.
func (o *Options) tlsConfig(name string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         name,
		RootCAs:            o.Roots,
		ClientSessionCache: tls.NewLRUClientSessionCache(4),
	}
}

// tlsServer is DNS over TLS (RFC 7858), with the strict profile of RFC 8310: no
// valid certificate for the name, no question. Connections are kept for the
// next question, one question at a time on each.
type tlsServer struct {
	addr   netip.AddrPort
	name   string
	dial   DialFunc
	clock  func() time.Duration
	config *tls.Config

	mu   sync.Mutex
	idle []idleConn // the one used last at the end
}

type idleConn struct {
	conn  net.Conn
	since time.Duration
}

var _ server = (*tlsServer)(nil)

func newTLSServer(s policies.Server, opts Options) *tlsServer {
	name := s.ServerName.String()
	if name == "" {
		name = s.Addr.Addr().String()
	}
	config := opts.tlsConfig(name)
	config.NextProtos = []string{"dot"}
	return &tlsServer{
		addr:   s.Addr,
		name:   "tls://" + s.Addr.String() + "#" + name,
		dial:   opts.Dial,
		clock:  opts.Clock,
		config: config,
	}
}

// String returns the server as the policy writes it.
func (s *tlsServer) String() string { return s.name }

// exchange uses a kept connection if there is one. Servers close those when
// they like, so a failure on one is no failure yet.
func (s *tlsServer) exchange(ctx context.Context, q Query) (*dns.Msg, error) {
	if conn := s.take(); conn != nil {
		if msg, err := s.on(ctx, conn, q); err == nil {
			return msg, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	raw, err := s.dial(ctx, "tcp", s.addr.String())
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, s.config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return s.on(ctx, conn, q)
}

// on asks over conn, and keeps it if all went well.
func (s *tlsServer) on(ctx context.Context, conn net.Conn, q Query) (*dns.Msg, error) {
	stop := boundExchange(ctx, conn)
	msg, err := overStream(conn, q)
	if !stop() || err != nil {
		_ = conn.Close()
		return msg, err
	}
	s.keep(conn)
	return msg, nil
}

func (s *tlsServer) take() net.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOld()
	if len(s.idle) == 0 {
		return nil
	}
	last := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return last.conn
}

func (s *tlsServer) keep(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropOld()
	if len(s.idle) == maxIdleConns {
		_ = conn.Close()
		return
	}
	s.idle = append(s.idle, idleConn{conn, s.clock()})
}

// dropOld closes what was idle for too long; the caller holds mu.
func (s *tlsServer) dropOld() {
	now := s.clock()
	for len(s.idle) > 0 && now-s.idle[0].since > idleConnAge {
		_ = s.idle[0].conn.Close()
		s.idle = s.idle[1:]
	}
}

func (s *tlsServer) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, idle := range s.idle {
		_ = idle.conn.Close()
	}
	s.idle = nil
}
