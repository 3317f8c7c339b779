package gateway

import (
	"context"
	"net"
	"net/netip"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
)

// pingTimeout is how long an answer is waited for: ping's own default wait is shorter.
const pingTimeout = 5 * time.Second

// IANA protocol numbers, as icmp.ParseMessage wants them.
const (
	protoICMP   = 1
	protoICMPv6 = 58
)

// HandlePing implements netstack.Handler.
func (g *Gateway) HandlePing(ctx context.Context, p *netstack.PingFlow) {
	f := g.open(egress.ICMP, netip.AddrPortFrom(p.Src(), 0), netip.AddrPortFrom(p.Dst(), 0))
	if f.verdict = echoed(&f.Flow, g.judge(f)); !f.verdict.Allowed() {
		g.record(f)
		p.Reject()
		return
	}
	ctx, done := g.admit(ctx, f)
	up := int64(len(p.Payload()))
	if err := g.ping(ctx, f, p); err != nil {
		done(up, 0, err)
		return
	}
	done(up, up, p.Reply())
}

// ping sends one echo request over an unprivileged ping socket and waits for its answer.
func (g *Gateway) ping(ctx context.Context, f *flow, p *netstack.PingFlow) error {
	network, listen, proto := "udp4", "0.0.0.0", protoICMP
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if p.Dst().Is6() {
		network, listen, proto = "udp6", "::", protoICMPv6
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := icmp.ListenPacket(network, listen)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	msg := icmp.Message{Type: request, Body: &icmp.Echo{Seq: int(p.Seq()), Data: p.Payload()}}
	b, err := msg.Marshal(nil)
	if err != nil {
		return err
	}
	special := func(netip.AddrPort) bool { return f.verdict.Special }
	if err := egress.CheckDial(g.classifier, netip.AddrPortFrom(p.Dst(), 1), special); err != nil {
		return err
	}
	if err := g.budget.take(len(b)); err != nil {
		return err
	}
	if _, err := conn.WriteTo(b, &net.UDPAddr{IP: p.Dst().AsSlice()}); err != nil {
		return err
	}
	return awaitReply(conn, proto, reply, p)
}

// awaitReply reads until the answer to this very request comes.
func awaitReply(conn *icmp.PacketConn, proto int, want icmp.Type, p *netstack.PingFlow) error {
	if err := conn.SetReadDeadline(time.Now().Add(pingTimeout)); err != nil {
		return err
	}
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || udp.AddrPort().Addr().Unmap() != p.Dst() {
			continue
		}
		msg, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || msg.Type != want {
			continue
		}
		if echo, ok := msg.Body.(*icmp.Echo); ok && echo.Seq == int(p.Seq()) {
			return nil
		}
	}
}
