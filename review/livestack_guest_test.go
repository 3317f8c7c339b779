package review_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"github.com/msb-project/msb/capture"
	"github.com/msb-project/msb/gateway/gatewaytest"
	"github.com/msb-project/msb/internal/pcapgen"
)

// liveGuest does what the guest of a capture did, with a TCP/IP stack of its own: it connects, sends,
// pings and leaves from the same ports. Frames that no stack makes are put on the link beside it.
type liveGuest struct {
	*wire
	*gatewaytest.World
	plain *plain
	wg    sync.WaitGroup

	calls   map[connection]*call
	sockets map[socket]*gonet.UDPConn
	got     map[uint16]int // datagrams that came to sockets, under the wire's lock
	echoes  map[netip.Addr]int
	routed  map[netip.Addr]bool

	own map[ends]said // flows that the stack made
	shares
}

// call is a connection that the stack makes.
type call struct {
	stream

	conn  *gonet.TCPConn // nil if it was refused
	left  bool           // the guest's end is closed
	ended bool           // so is the gateway's; under the wire's lock
}

// socket names a UDP socket of the guest.
type socket struct {
	port uint16
	four bool
}

func startLiveGuest(t *testing.T, c *pcapgen.Case, file []byte, zone []string) *liveGuest {
	t.Helper()
	mac := macOf(t, file)
	g := &liveGuest{
		wire: newWire(t), plain: newPlain(t, file, mac),
		calls: map[connection]*call{}, sockets: map[socket]*gonet.UDPConn{}, got: map[uint16]int{},
		echoes: map[netip.Addr]int{}, routed: map[netip.Addr]bool{},
		own: map[ends]said{},
	}
	p, change := settings(t, c, g.wire, mac)
	g.World = gatewaytest.StartWith(t, p, change)
	fill(t, g.Internet, file, zone)
	g.ping(pcapgen.Gateway4, []byte("who has"), true) // or the first packets wait for ARP, and few may
	g.ping(pcapgen.Gateway6, []byte("who has"), true)
	return g
}

// say does what made a frame, or puts the frame itself on the link.
func (g *liveGuest) say(frame []byte, h *capture.Headers, ok bool) {
	g.t.Helper()
	c := connection{h.Src.Port(), h.Dst}
	if !ok || !g.plain.says(frame, h) {
		g.injected++
		if ok && h.Transport == capture.TransportTCP {
			g.Guest.Raw(c.port)
		}
		if !ok || g.follow(frame, h) {
			g.Guest.Inject(frame)
		}
		return
	}
	g.spoken++
	g.own[ends{h.Transport.String(), c.port, c.peer}] = said{h.Transport, c}
	g.route(h.Dst.Addr())
	switch h.Transport {
	case capture.TransportTCP:
		g.segment(c, h)
	case capture.TransportUDP:
		g.datagram(c, h.Payload)
	default:
		g.ping(h.Dst.Addr(), h.Payload, g.plain.replies[h.Dst.Addr()] > g.echoes[h.Dst.Addr()])
		g.echoes[h.Dst.Addr()]++
	}
}

// route has the stack send by way of the gateway to what it would look for on its own link, or not send to
// at all.
func (g *liveGuest) route(dst netip.Addr) {
	cfg := g.Guest.Config()
	link4, link6 := netip.PrefixFrom(cfg.Guest4, cfg.Prefix4), netip.PrefixFrom(cfg.Guest6, cfg.Prefix6)
	if dst == cfg.Gateway4 || dst == cfg.Gateway6 || g.routed[dst] {
		return
	}
	if link4.Contains(dst) || link6.Contains(dst) || dst.IsLoopback() || dst.IsLinkLocalUnicast() && dst.Is6() {
		g.routed[dst] = true
		g.Guest.ViaGateway(dst)
	}
}

// segment does what a segment of the capture shows: most of them are the stack's own affair.
func (g *liveGuest) segment(c connection, h *capture.Headers) {
	g.t.Helper()
	k := g.calls[c]
	if k == nil {
		k = &call{}
		g.calls[c] = k
		g.connect(c, k)
	}
	fresh := k.take(h)
	if k.conn == nil {
		return
	}
	if len(fresh) > 0 {
		_ = k.conn.SetWriteDeadline(time.Now().Add(replayWait))
		if _, err := k.conn.Write(fresh); err != nil && !g.waitFor(replayWait, func() bool { return g.over[c] || k.ended }) {
			g.t.Errorf("writing to %v: %v", c.peer, err)
		}
	}
	switch {
	case h.Flags&capture.RST != 0:
		k.left = true
		_ = k.conn.Close()
	case h.Flags&capture.FIN != 0 && !k.left:
		k.left = true
		_ = k.conn.CloseWrite() // it may have been reset
	}
}

// connect has the stack connect. It gives up when the gateway has refused in a way that the stack does not
// hear: a dropped SYN, a reset from an address that it takes no packets from.
func (g *liveGuest) connect(c connection, k *call) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), replayWait)
	var watch sync.WaitGroup
	watch.Go(func() {
		if g.until(ctx, func() bool { return g.over[c] }) {
			cancel()
		}
	})
	conn, err := g.Guest.DialTCPFrom(ctx, c.port, c.peer)
	cancel()
	watch.Wait()
	switch {
	case err == nil:
		k.conn = conn
		g.wg.Go(func() { g.listen(k) })
	case !g.wait(func() bool { return g.sent[said{capture.TransportTCP, c}] > 0 }):
		g.t.Errorf("the stack sent no SYN to %v: %v", c.peer, err)
	case !g.refused(c):
		g.t.Errorf("the gateway neither took nor refused a connection to %v: %v", c.peer, err)
	}
}

// listen reads what the gateway says on a connection until it ends.
func (g *liveGuest) listen(k *call) {
	_, _ = io.Copy(io.Discard, k.conn)
	g.note(func() { k.ended = true })
}

// datagram sends from the socket that the capture's guest used.
func (g *liveGuest) datagram(c connection, payload []byte) {
	g.t.Helper()
	dst := c.peer.Addr()
	s := socket{c.port, dst.Is4()}
	conn := g.sockets[s]
	if conn == nil {
		var err error
		if conn, err = g.Guest.ListenUDP(c.port, dst); err != nil {
			g.t.Fatalf("a socket at port %d: %v", c.port, err)
		}
		g.sockets[s] = conn
		g.wg.Go(func() { g.collect(conn, c.port) })
	}
	at := said{capture.TransportUDP, c}
	before := g.count(at)
	_, err := conn.WriteTo(payload, net.UDPAddrFromAddrPort(c.peer))
	if err != nil || !g.wait(func() bool { return g.sent[at] > before }) {
		g.t.Errorf("the stack sent no datagram to %v: %v", c.peer, err)
	}
}

// collect counts what comes to a socket.
func (g *liveGuest) collect(conn *gonet.UDPConn, port uint16) {
	buf := make([]byte, 64<<10)
	for {
		if _, _, err := conn.ReadFrom(buf); err != nil {
			return
		}
		g.note(func() { g.got[port]++ })
	}
}

// ping sends an echo request. One that the capture shows no answer to is not waited for.
func (g *liveGuest) ping(dst netip.Addr, payload []byte, answered bool) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), replayWait)
	defer cancel()
	at := said{capture.TransportPing, connection{0, netip.AddrPortFrom(dst, 0)}}
	before := g.count(at)
	result := make(chan error, 1)
	g.wg.Go(func() { result <- g.Guest.Ping(ctx, dst, payload) })
	if !g.wait(func() bool { return g.sent[at] > before }) {
		cancel()
		g.t.Errorf("the stack sent no ping to %v: %v", dst, <-result)
		return
	}
	if !answered {
		cancel()
	}
	if err := <-result; err != nil && answered {
		g.t.Error(err)
	}
}

// refused reports whether the gateway reset a connection or dropped its SYN.
func (g *liveGuest) refused(c connection) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over[c]
}

func (g *liveGuest) count(at said) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent[at]
}

// finish leaves what the capture's guest left open, and waits: both ends have closed each connection, so that
// the gateway has judged it, and what was asked has come to the stack.
func (g *liveGuest) finish() {
	g.t.Helper()
	for _, k := range g.calls {
		if k.conn != nil && !k.left {
			k.left = true
			_ = k.conn.CloseWrite()
		}
	}
	for c, k := range g.calls {
		if k.conn != nil && !g.wait(func() bool { return k.ended }) {
			g.t.Errorf("the gateway did not end a connection to %v that its client left", c.peer)
		}
	}
	for s := range g.sockets {
		if !g.wait(func() bool { return g.got[s.port] >= g.awaited[s.port] }) {
			g.t.Errorf("the socket at port %d got fewer answers than the gateway sent", s.port)
		}
	}
}

// leave ends the guest and the gateway.
func (g *liveGuest) leave() {
	for _, k := range g.calls {
		if k.conn != nil {
			_ = k.conn.Close()
		}
	}
	for _, conn := range g.sockets {
		_ = conn.Close()
	}
	g.wg.Wait()
	g.Close()
}
