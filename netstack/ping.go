package netstack

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/msb-project/msb/netstack/frameguard"
)

// echoHeader is type, code, checksum, identifier and sequence number, the same
// in ICMP and ICMPv6.
const echoHeader = 8

// PingFlow is one echo request to an address other than the gateway's.
type PingFlow struct {
	stack    *Stack
	id       stack.TransportEndpointID
	src, dst netip.Addr
	echo     []byte // the ICMP message
	first    []byte // quoted by Reject
	once     sync.Once
}

// Src is the guest's address.
func (p *PingFlow) Src() netip.Addr { return p.src }

// Dst is the address that the guest pings.
func (p *PingFlow) Dst() netip.Addr { return p.dst }

// ID is the identifier that the guest chose.
func (p *PingFlow) ID() uint16 { return uint16(p.echo[4])<<8 | uint16(p.echo[5]) }

// Seq is the sequence number that the guest chose.
func (p *PingFlow) Seq() uint16 { return uint16(p.echo[6])<<8 | uint16(p.echo[7]) }

// Payload is the data to be echoed, at most MaxFrame bytes.
func (p *PingFlow) Payload() []byte { return p.echo[echoHeader:] }

// Reply sends the echo reply with the request's payload, once.
func (p *PingFlow) Reply() error {
	err := ErrFlowDone
	p.once.Do(func() { err = p.reply() })
	return err
}

// Reject answers with ICMP administratively prohibited.
func (p *PingFlow) Reject() {
	p.once.Do(func() { p.stack.icmp.send(p.first, adminProhibited) })
}

func (p *PingFlow) reply() error {
	proto, transport := header.IPv4ProtocolNumber, header.ICMPv4ProtocolNumber
	if p.dst.Is6() {
		proto, transport = header.IPv6ProtocolNumber, header.ICMPv6ProtocolNumber
	}
	r, terr := p.stack.net.FindRoute(nicID, p.id.LocalAddress, p.id.RemoteAddress, proto, false)
	if terr != nil {
		return translate(terr)
	}
	defer r.Release()
	pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{
		ReserveHeaderBytes: int(r.MaxHeaderLength()) + echoHeader,
		Payload:            buffer.MakeWithData(p.Payload()),
	})
	defer pkt.DecRef()
	pkt.TransportProtocolNumber = transport
	icmp := pkt.TransportHeader().Push(echoHeader)
	copy(icmp, p.echo[:echoHeader])
	icmp[2], icmp[3] = 0, 0
	if p.dst.Is6() {
		header.ICMPv6(icmp).SetType(header.ICMPv6EchoReply)
		header.ICMPv6(icmp).SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{
			Header: icmp, Src: p.id.LocalAddress, Dst: p.id.RemoteAddress,
			PayloadCsum: pkt.Data().Checksum(), PayloadLen: pkt.Data().Size(),
		}))
	} else {
		header.ICMPv4(icmp).SetType(header.ICMPv4EchoReply)
		header.ICMPv4(icmp).SetChecksum(^checksum.Checksum(icmp, pkt.Data().Checksum()))
	}
	terr = r.WritePacket(stack.NetworkHeaderParams{Protocol: transport, TTL: gatewayTTL, TOS: stack.DefaultTOS}, pkt)
	if terr != nil {
		return translate(terr)
	}
	return nil
}

// errPingsFull never leaves this file.
var errPingsFull = errors.New("too many echo requests at once")

// pings hands echo requests to the Handler, a bounded number at a time.
type pings struct {
	stack *Stack
	mu    sync.Mutex
	busy  int
}

func newPings(s *Stack) *pings { return &pings{stack: s} }

// handle sees ICMP after reassembly. True keeps gVisor from answering: it would
// for every address that it is promiscuous about, in IPv6.
func (p *pings) handle(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	dst, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	if p.forGateway(dst) {
		return false
	}
	echo := append([]byte(nil), pkt.TransportHeader().Slice()...)
	echo = append(echo, pkt.Data().AsRange().ToSlice()...)
	if len(echo) < echoHeader || echo[0] != byte(header.ICMPv4Echo) && echo[0] != byte(header.ICMPv6EchoRequest) {
		return true
	}
	src, _ := netip.AddrFromSlice(id.RemoteAddress.AsSlice())
	if err := p.start(); err != nil {
		p.stack.limited(LimitPings, "icmp", netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, 0))
		return true
	}
	go p.serve(&PingFlow{stack: p.stack, id: id, src: src, dst: dst, echo: echo, first: quote(pkt)})
	return true
}

func (p *pings) forGateway(dst netip.Addr) bool {
	return dst == p.stack.cfg.Gateway4 || dst == p.stack.cfg.Gateway6 || dst == frameguard.LinkLocal(p.stack.cfg.GatewayMAC)
}

func (p *pings) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stack.ctx.Err() != nil {
		return ErrClosed
	}
	if p.busy >= p.stack.limits.Load().Pings {
		return errPingsFull
	}
	p.busy++
	p.stack.wg.Add(1)
	return nil
}

func (p *pings) serve(f *PingFlow) {
	defer p.stack.wg.Done()
	defer func() {
		p.mu.Lock()
		p.busy--
		p.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(p.stack.ctx)
	defer cancel()
	p.stack.cfg.Handler.HandlePing(ctx, f)
}

// addressOf converts to gVisor's address.
func addressOf(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }
