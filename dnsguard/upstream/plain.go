package upstream

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/miekg/dns"
)

// maxUDPRead is the longest answer over UDP that is read: three times what we
// say we take, for servers that don't look.
const maxUDPRead = 4096

// udpBuffers holds buffers for reads; what is unpacked from one points nowhere
// into it.
var udpBuffers = sync.Pool{New: func() any { return new([maxUDPRead]byte) }}

// plainServer is DNS over UDP, and over TCP where UDP won't do.
type plainServer struct {
	addr netip.AddrPort
	dial DialFunc
	name string
}

var _ server = (*plainServer)(nil)

// String returns the server as the policy writes it.
func (s *plainServer) String() string { return s.name }

func (s *plainServer) closeIdle() {}

// exchange asks over UDP from a fresh socket, so that the kernel gives each
// question its own random port, and goes to TCP, which nobody off the path can
// answer on, when the answer is cut short, when its case is not ours, or when
// strays pour in.
func (s *plainServer) exchange(ctx context.Context, q Query) (*dns.Msg, error) {
	msg, err := s.overUDP(ctx, q, true)
	if err == nil && msg != nil && msg.Rcode == dns.RcodeFormatError {
		msg, err = s.overUDP(ctx, q, false) // knows no EDNS
	}
	if err != nil {
		return nil, err
	}
	if msg != nil && !msg.Truncated {
		return msg, nil
	}
	return s.overTCP(ctx, q)
}

// overUDP returns a nil message when TCP should be tried.
func (s *plainServer) overUDP(ctx context.Context, q Query, edns bool) (*dns.Msg, error) {
	conn, err := s.dial(ctx, "udp", s.addr.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer boundExchange(ctx, conn)()
	query, err := q.sent(edns)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(query); err != nil {
		return nil, err
	}
	pooled := udpBuffers.Get().(*[maxUDPRead]byte) // it holds nothing else
	defer udpBuffers.Put(pooled)
	buf := pooled[:]
	for range maxStrays {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, err
		}
		switch matches(query, buf[:n]) {
		case matchExact:
			return unpack(buf[:n])
		case matchFolded:
			return nil, nil // TCP decides whether the server folds case
		case matchNone:
		}
	}
	return nil, nil // strays: TCP
}

func (s *plainServer) overTCP(ctx context.Context, q Query) (*dns.Msg, error) {
	dialing, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	conn, err := s.dial(dialing, "tcp", s.addr.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer boundExchange(ctx, conn)()
	return overStream(conn, q)
}

// overStream asks over a connection on which nothing else is under way.
func overStream(conn net.Conn, q Query) (*dns.Msg, error) {
	query, err := q.sent(true)
	if err != nil {
		return nil, err
	}
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(query)), uint16(len(query)))
	if _, err := conn.Write(append(framed, query...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	// A stream is no place to guess for others: the case may differ here.
	if matches(query, answer) == matchNone {
		return nil, errNotOurs
	}
	msg, err := unpack(answer)
	if err != nil {
		return nil, err
	}
	if msg.Truncated {
		return nil, fmt.Errorf("%w", errTruncated)
	}
	return msg, nil
}
