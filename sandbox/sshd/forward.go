package sshd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"golang.org/x/crypto/ssh"
)

// errElsewhere refuses what would lead around the policy.
var errElsewhere = errors.New("only the guest's own loopback can be forwarded to (localhost, 127.0.0.1, ::1)")

// errBackElsewhere is errElsewhere for ssh -R.
var errBackElsewhere = errors.New("the guest listens at its own loopback only (localhost, 127.0.0.1, ::1)")

// forward carries a connection of ssh -L, -D or -W to a server in the guest.
func (l *link) forward(ctx context.Context, c ssh.NewChannel) {
	var m struct {
		Host       string
		Port       uint32
		Origin     string
		OriginPort uint32
	}
	if err := ssh.Unmarshal(c.ExtraData(), &m); err != nil {
		reject(c, ssh.ConnectionFailed, "a request that can't be read")
		return
	}
	addresses, err := l.server.loopback(m.Host, m.Port)
	if err != nil {
		reject(c, ssh.Prohibited, err.Error())
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	guest, err := connectAny(ctx, l.server.Guest, addresses)
	if err != nil {
		reject(c, ssh.ConnectionFailed, err.Error())
		return
	}
	channel, requests, err := c.Accept()
	if err != nil { // the client has gone
		_ = guest.Close()
		return
	}
	l.carry(channel, requests, guest)
}

// loopback says where a client that asks for host is to be connected.
func (s *Server) loopback(host string, port uint32) ([]netip.AddrPort, error) {
	if port == 0 || port > 1<<16-1 {
		return nil, fmt.Errorf("%d is no port", port)
	}
	at := func(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, uint16(port)) }
	if host == "localhost" || host == s.Name {
		return []netip.AddrPort{at(netip.AddrFrom4([4]byte{127, 0, 0, 1})), at(netip.IPv6Loopback())}, nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() != "" || !a.Unmap().IsLoopback() {
		return nil, errElsewhere
	}
	return []netip.AddrPort{at(a.Unmap())}, nil
}

// connectAny returns the connection to the first address that takes one, or the first one's error.
func connectAny(ctx context.Context, g Guest, to []netip.AddrPort) (Conn, error) {
	var first error
	for _, a := range to {
		conn, err := g.Connect(ctx, a)
		if err == nil {
			return conn, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// carry copies both ways, and closes each direction by itself, until both have ended or the client closes the channel.
func (l *link) carry(channel ssh.Channel, requests <-chan *ssh.Request, guest Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		l.contained(func() {
			_, _ = io.Copy(guest, channel) // a guest that has closed ends the other direction too
			_ = guest.CloseWrite()
		})
	})
	both.Go(func() {
		l.contained(func() {
			_, err := io.Copy(channel, guest)
			if err != nil { // SSH has no reset: the channel's end is all that the client can be told
				_ = channel.Close()
				return
			}
			_ = channel.CloseWrite()
		})
	})
	l.run(func() {
		ssh.DiscardRequests(requests) // until the client closes the channel
		_ = guest.Close()
	})
	both.Wait()
	_, _ = guest.Close(), channel.Close() // whatever they say, nothing is left to carry
}
