package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/egress/session"
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
	ctx, f, step := g.open(ctx, egress.ICMP, netip.AddrPortFrom(p.Src(), 0), netip.AddrPortFrom(p.Dst(), 0))
	defer f.forget()
	if step.Action == session.Wait {
		step = f.wait()
	}
	f.verdicts(&step)
	switch step.Action {
	case session.Drop:
		return
	case session.Dial:
	case session.Reject, session.Refuse, session.NeedBytes, session.NeedNames, session.Wait, session.Relay,
		session.Inspect, session.ToDNS, session.Continue, session.End:
		p.Reject()
		return
	}
	done := f.admit(ctx)
	up := int64(len(p.Payload()))
	err := g.ping(ctx, f.judged().Verdict, p)
	if f.dialed(err).Action != session.Relay {
		done(up, 0, err)
		if !errors.Is(err, os.ErrDeadlineExceeded) { // silence is what the guest sees of silence
			p.Reject()
		}
		return
	}
	done(up, up, p.Reply())
}

// ping has the host ask for an answer to the guest's echo request, at exactly the address that was judged.
func (g *Gateway) ping(ctx context.Context, v egress.Verdict, p *netstack.PingFlow) error {
	fuse := func() error {
		return egress.CheckDial(g.classifier, egress.ICMP, netip.AddrPortFrom(p.Dst(), 1), v.Reach)
	}
	if ctx.Err() != nil { // a reload may have ended it since the verdict
		return context.Cause(ctx)
	}
	if err := fuse(); err != nil {
		return err
	}
	if err := g.budget.takePacket(len(p.Payload())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := g.cfg.Pinger.Ping(ctx, p.Dst(), p.Seq(), p.Payload()); err != nil {
		return err
	}
	return fuse() // it may be the host that answered
}

// pingSocket is the host's unprivileged ping socket (net.ipv4.ping_group_range).
type pingSocket struct{}

var _ Pinger = pingSocket{}

// Ping implements Pinger.
func (pingSocket) Ping(ctx context.Context, dst netip.Addr, seq uint16, payload []byte) error {
	network, listen, proto := "udp4", "0.0.0.0", protoICMP
	var request, reply icmp.Type = ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply
	if dst.Is6() {
		network, listen, proto = "udp6", "::", protoICMPv6
		request, reply = ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply
	}
	conn, err := icmp.ListenPacket(network, listen)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	msg := icmp.Message{Type: request, Body: &icmp.Echo{Seq: int(seq), Data: payload}}
	b, err := msg.Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := conn.WriteTo(b, &net.UDPAddr{IP: dst.AsSlice()}); err != nil {
		return err
	}
	return awaitReply(conn, proto, reply, dst, seq)
}

// awaitReply reads until the answer to this very request comes.
func awaitReply(conn *icmp.PacketConn, proto int, want icmp.Type, dst netip.Addr, seq uint16) error {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		udp, ok := from.(*net.UDPAddr)
		if !ok || udp.AddrPort().Addr().Unmap() != dst {
			continue
		}
		msg, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil || msg.Type != want {
			continue
		}
		if echo, ok := msg.Body.(*icmp.Echo); ok && echo.Seq == int(seq) {
			return nil
		}
	}
}
