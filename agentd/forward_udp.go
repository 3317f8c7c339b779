//go:build linux

package agentd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxUDPFlows bounds the clients of all UDP forwards: each takes a buffer for a datagram of the guest's memory. A new one
	// takes the place of the one that was silent for longest.
	maxUDPFlows = 128

	// udpFlowIdle ends a client's flow without traffic, as the gateway's.
	udpFlowIdle = 2 * time.Minute

	// maxDatagram is what IP carries, in bytes.
	maxDatagram = 1<<16 - 1
)

// udpFlows are the sockets of the clients of UDP forwards. The zero value has none.
type udpFlows struct {
	mu   sync.Mutex
	live map[udpClient]*udpFlow
}

// udpClient is a port of the host's address at one forward.
type udpClient struct {
	at   *net.UDPConn
	from netip.AddrPort
}

type udpFlow struct {
	server *net.UDPConn
	last   time.Time // guarded by udpFlows.mu
}

// errNoUDPServer is of a port where no program of the guest has a socket.
var errNoUDPServer = errors.New("no program listens there")

// loopbackUDP finds the address by which loopback reaches a program that has a UDP socket at that port, in the tables
// that Linux shows in dir. A datagram would not tell: nobody has to answer one.
func loopbackUDP(dir string, port uint16) (netip.Addr, error) {
	for _, table := range []struct {
		file      string
		addresses []string // as Linux writes them: any address, and loopback
		reach     netip.Addr
	}{
		{"udp", []string{"00000000", "0100007F"}, netip.AddrFrom4([4]byte{127, 0, 0, 1})},
		{"udp6", []string{strings.Repeat("0", 32), "00000000000000000000000001000000"}, netip.IPv6Loopback()},
	} {
		for _, address := range table.addresses {
			found, err := hasSocket(dir+"/"+table.file, address+":"+fmt.Sprintf("%04X", port))
			if err != nil && !errors.Is(err, os.ErrNotExist) { // without IPv6 there is one table
				return netip.Addr{}, err
			}
			if found {
				return table.reach, nil
			}
		}
	}
	return netip.Addr{}, fmt.Errorf("UDP port %d of 127.0.0.1: %w", port, errNoUDPServer)
}

// hasSocket looks for a socket that is connected to nobody at a local address.
func hasSocket(table, local string) (bool, error) {
	f, err := os.Open(table)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address …
		if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[1] == local && strings.HasSuffix(fields[2], ":0000") {
			return true, nil
		}
	}
	return false, lines.Err()
}

// serveUDP passes the host's datagrams on to the server, and nobody else's.
func (s *loopbackServer) serveUDP(conn *net.UDPConn, f forward) {
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || from.Addr().Unmap() != f.from {
			continue // an ICMP error of an answer, or another sender
		}
		if server := s.flow(udpClient{conn, from}, f); server != nil {
			_, _ = server.Write(buf[:n]) // a datagram may be lost
		}
	}
}

// flow finds or begins a client's flow; nil where there is no server.
func (s *loopbackServer) flow(client udpClient, f forward) *net.UDPConn {
	s.flows.mu.Lock()
	defer s.flows.mu.Unlock()
	if one := s.flows.live[client]; one != nil {
		one.last = time.Now()
		return one.server
	}
	addr, err := loopbackUDP("/proc/self/net", f.port)
	if err != nil {
		return nil
	}
	var d net.Dialer
	c, err := d.DialContext(s.ctx, "udp", net.JoinHostPort(addr.String(), strconv.Itoa(int(f.port))))
	if err != nil {
		return nil
	}
	server, ok := c.(*net.UDPConn)
	if !ok { // it is
		_ = c.Close()
		return nil
	}
	s.flows.makeRoom()
	one := &udpFlow{server: server, last: time.Now()}
	if s.flows.live == nil {
		s.flows.live = make(map[udpClient]*udpFlow)
	}
	s.flows.live[client] = one
	s.work.Go(func() { s.answers(client, one) })
	return server
}

// makeRoom ends the flow that was silent for longest, if there are as many as there may be.
func (u *udpFlows) makeRoom() {
	if len(u.live) < maxUDPFlows {
		return
	}
	var oldest udpClient
	for c, f := range u.live {
		if oldest.at == nil || f.last.Before(u.live[oldest].last) {
			oldest = c
		}
	}
	_ = u.live[oldest].server.Close()
	delete(u.live, oldest)
}

// answers passes the server's datagrams back, until it has gone or nothing passed for a while.
func (s *loopbackServer) answers(client udpClient, one *udpFlow) {
	stop := context.AfterFunc(s.ctx, func() { _ = one.server.Close() })
	defer stop()
	defer func() {
		_ = one.server.Close()
		s.flows.mu.Lock()
		defer s.flows.mu.Unlock()
		if s.flows.live[client] == one {
			delete(s.flows.live, client)
		}
	}()
	buf := make([]byte, maxDatagram)
	for {
		silent := s.flows.lastOf(one, false).Add(s.idle)
		_ = one.server.SetReadDeadline(silent) // its only error is that it is closed
		n, err := one.server.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && s.flows.lastOf(one, false).Add(s.idle).After(silent) {
			continue // the client has sent something meanwhile
		}
		if err != nil {
			return
		}
		s.flows.lastOf(one, true)
		_, _ = client.at.WriteToUDPAddrPort(buf[:n], client.from) // a datagram may be lost
	}
}

// lastOf is when something passed; now notes that something does.
func (u *udpFlows) lastOf(one *udpFlow, now bool) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now {
		one.last = time.Now()
	}
	return one.last
}
