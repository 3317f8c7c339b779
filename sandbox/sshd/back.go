package sshd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/msb-project/msb/agentd/agentclient"
)

// Listener accepts connections of the guest's programs that lead back to the client.
type Listener interface {
	// Where is the socket's path in the guest, or the port.
	Where() (path string, port uint16)
	Accept() (Conn, netip.AddrPort, error)
	Close() error
}

// back is what leads from the guest to one client. The sandbox's supervisor opens it only if the policy allows it.
type back struct {
	link *link

	mu      sync.Mutex
	reverse map[reverseKey]Listener
	agent   Listener // of all sessions that ask for it; nil until one does
}

// reverseKey is how the client names a forwarding of ssh -R, when it cancels it too.
type reverseKey struct {
	host string
	port uint32
}

// answer answers what the client asks beside its channels (RFC 4254, section 7.1).
func (b *back) answer(ctx context.Context, r *ssh.Request) {
	var reply []byte
	ok := false
	switch r.Type {
	case "tcpip-forward":
		reply, ok = b.open(ctx, r.Payload)
	case "cancel-tcpip-forward":
		ok = b.cancel(r.Payload)
	}
	if r.WantReply {
		_ = r.Reply(ok, reply) // its only error is that the client has gone
	}
}

// open has the guest listen for ssh -R.
func (b *back) open(ctx context.Context, payload []byte) (reply []byte, ok bool) {
	var m struct {
		Host string
		Port uint32
	}
	if ssh.Unmarshal(payload, &m) != nil || m.Port > 1<<16-1 {
		return nil, false
	}
	key := reverseKey{m.Host, m.Port}
	addr, err := listenAddress(m.Host)
	if err == nil {
		err = b.room(key)
	}
	var l Listener
	if err == nil {
		l, err = b.link.server.Guest.Listen(ctx, agentclient.ListenOptions{Back: agentclient.BackReverse, At: netip.AddrPortFrom(addr, uint16(m.Port))})
	}
	if err != nil {
		b.link.warn("reverse forwarding of %s is refused: %v", net.JoinHostPort(m.Host, strconv.Itoa(int(m.Port))), err)
		return nil, false
	}
	_, port := l.Where()
	if m.Port == 0 {
		reply = ssh.Marshal(struct{ Port uint32 }{uint32(port)})
		key.port = uint32(port)
	}
	b.mu.Lock()
	if b.reverse == nil {
		b.reverse = map[reverseKey]Listener{}
	}
	b.reverse[key] = l
	b.mu.Unlock()
	b.serve(ctx, l, "forwarded-tcpip", func(from netip.AddrPort) []byte {
		return ssh.Marshal(struct {
			Host       string
			Port       uint32
			Origin     string
			OriginPort uint32
		}{key.host, key.port, origin(from), uint32(from.Port())})
	})
	return reply, true
}

// room reports whether the client may have another forwarding.
func (b *back) room(key reverseKey) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reverse[key] != nil {
		return errors.New("it is forwarded already")
	}
	if len(b.reverse) == maxReverse {
		return fmt.Errorf("%d ports are forwarded already; cancel one", maxReverse)
	}
	return nil
}

// listenAddress is where the guest listens if a client asks for host: at its loopback, whatever the client says of others,
// as sshd does without GatewayPorts.
func listenAddress(host string) (netip.Addr, error) {
	if host == "" || host == "localhost" {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() != "" || !a.Unmap().IsLoopback() {
		return a, errBackElsewhere
	}
	return a.Unmap(), nil
}

func (b *back) cancel(payload []byte) bool {
	var m struct {
		Host string
		Port uint32
	}
	if ssh.Unmarshal(payload, &m) != nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := reverseKey{m.Host, m.Port}
	l := b.reverse[key]
	if l == nil {
		return false
	}
	delete(b.reverse, key)
	_ = l.Close() // its only error is that it is closed already
	return true
}

// agentSocket is the path of the guest's socket that leads to the client's ssh agent: one for all sessions of user's.
func (b *back) agentSocket(ctx context.Context) (path string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent == nil {
		l, err := b.link.server.Guest.Listen(ctx, agentclient.ListenOptions{Back: agentclient.BackAgent, User: b.link.user})
		if err != nil {
			b.link.warn("agent forwarding is refused: %v", err)
			return "", false
		}
		b.agent = l
		b.serve(ctx, l, "auth-agent@openssh.com", func(netip.AddrPort) []byte { return nil })
	}
	path, _ = b.agent.Where()
	return path, true
}

// serve opens a channel to the client for each connection, until ctx ends or the listener does.
func (b *back) serve(ctx context.Context, l Listener, kind string, extra func(from netip.AddrPort) []byte) {
	link := b.link
	link.run(func() {
		stop := context.AfterFunc(ctx, func() { _ = l.Close() })
		defer stop()
		defer b.forget(l)
		for {
			select {
			case link.backs <- struct{}{}:
			case <-ctx.Done():
				return
			}
			conn, from, err := l.Accept()
			if err != nil { // such as a policy that no longer allows it
				_ = l.Close()
				<-link.backs
				return
			}
			link.run(func() {
				defer func() { <-link.backs }()
				if !take(&link.server.channels, maxChannels) {
					_ = conn.Close()
					return
				}
				defer link.server.channels.Add(-1)
				channel, requests, err := link.client.OpenChannel(kind, extra(from))
				if err != nil { // the client has nobody there
					_ = conn.Close()
					return
				}
				link.carry(channel, requests, conn)
			})
		}
	})
}

// forget makes room for another listener in the place of one that has ended, which the policy in force then judges.
func (b *back) forget(l Listener) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.agent == l {
		b.agent = nil
	}
	maps.DeleteFunc(b.reverse, func(_ reverseKey, other Listener) bool { return other == l })
}

func origin(from netip.AddrPort) string {
	if !from.Addr().IsValid() {
		return "127.0.0.1"
	}
	return from.Addr().String()
}
