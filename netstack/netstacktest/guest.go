package netstacktest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/channel"
	"gvisor.dev/gvisor/pkg/tcpip/link/ethernet"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/msb-project/msb/netstack"
)

// nicID is the guest's one NIC.
const nicID tcpip.NICID = 1

const (
	txQueue   = 1024 // frames
	etherHead = 14   // bytes
)

// MAC is the address of guests that Start makes.
var MAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x02}

// Guest is a stack at the guest's end of a link.
type Guest struct {
	Stack *stack.Stack
	t     testing.TB
	cfg   netstack.Config
	mac   net.HardwareAddr
	ch    *channel.Endpoint
	link  *netstack.StreamLink

	writeMu sync.Mutex
	frames  frameLog
	raw     sync.Map // TCP ports whose segments are the caller's

	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Start builds the gateway's stack with cfg and a guest that has the leased
// addresses, joins them, and takes them down with the test. A nil GuestMAC
// becomes MAC.
func Start(t testing.TB, cfg netstack.Config) (*netstack.Stack, *Guest) {
	t.Helper()
	if cfg.GuestMAC == nil {
		cfg.GuestMAC = MAC
	}
	s, err := netstack.New(cfg)
	if err != nil {
		t.Fatalf("netstack.New: %v", err)
	}
	gateway, guest := Pair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(gateway)) }()
	g := NewGuest(t, guest, s.Config())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the stack: %v", err)
		}
		if err := <-served; err != nil && !errors.Is(err, netstack.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
		g.Close()
	})
	return s, g
}

// NewGuest runs a guest on the guest's end of a stream link, with the addresses
// that cfg leases. Its MTU is cfg's.
func NewGuest(t testing.TB, conn net.Conn, cfg netstack.Config) *Guest {
	t.Helper()
	g := &Guest{t: t, cfg: cfg, mac: cfg.GuestMAC, link: netstack.NewStreamLink(conn)}
	if g.mac == nil {
		g.mac = MAC
	}
	g.ch = channel.New(txQueue, uint32(cfg.MTU+etherHead), tcpip.LinkAddress(g.mac))
	g.Stack = stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocolWithOptions(ipv6.Options{}), arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	g.Stack.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, _ *stack.PacketBuffer) bool {
		_, raw := g.raw.Load(id.LocalPort)
		return raw
	})
	g.must(g.Stack.CreateNIC(nicID, ethernet.New(g.ch)))
	g.address(ipv4.ProtocolNumber, cfg.Guest4, cfg.Prefix4)
	g.address(ipv6.ProtocolNumber, cfg.Guest6, cfg.Prefix6)
	ll := header.LinkLocalAddr(tcpip.LinkAddress(g.mac))
	g.address(ipv6.ProtocolNumber, netip.AddrFrom16(ll.As16()), 64)
	g.Stack.SetRouteTable([]tcpip.Route{
		{Destination: subnet(cfg.Guest4, cfg.Prefix4), NIC: nicID},
		{Destination: subnet(cfg.Guest6, cfg.Prefix6), NIC: nicID},
		{Destination: header.IPv4EmptySubnet, Gateway: address(cfg.Gateway4), NIC: nicID},
		{Destination: header.IPv6EmptySubnet, Gateway: address(cfg.Gateway6), NIC: nicID},
	})
	var ctx context.Context
	ctx, g.cancel = context.WithCancel(context.Background())
	g.wg.Add(2)
	go func() { defer g.wg.Done(); g.send(ctx) }()
	go func() { defer g.wg.Done(); g.receive() }()
	t.Cleanup(sync.OnceFunc(g.Close)) // OnceFunc forgets g once called: a test keeps its cleanups until it ends
	return g
}

func (g *Guest) must(terr tcpip.Error) {
	g.t.Helper()
	if terr != nil {
		g.t.Fatalf("guest stack: %s", terr)
	}
}

func (g *Guest) address(proto tcpip.NetworkProtocolNumber, a netip.Addr, bits int) {
	g.t.Helper()
	g.must(g.Stack.AddProtocolAddress(nicID, tcpip.ProtocolAddress{
		Protocol:          proto,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: address(a), PrefixLen: bits},
	}, stack.AddressProperties{}))
}

func address(a netip.Addr) tcpip.Address { return tcpip.AddrFromSlice(a.AsSlice()) }

func subnet(a netip.Addr, bits int) tcpip.Subnet {
	return tcpip.AddressWithPrefix{Address: address(a), PrefixLen: bits}.Subnet()
}

// send carries the guest's frames to the link.
func (g *Guest) send(ctx context.Context) {
	for {
		pkt := g.ch.ReadContext(ctx)
		if pkt == nil {
			return
		}
		v := pkt.ToView()
		frame := append([]byte(nil), v.AsSlice()...)
		v.Release()
		pkt.DecRef()
		if g.write(frame) != nil {
			return
		}
	}
}

// receive carries the link's frames to the guest.
func (g *Guest) receive() {
	for {
		frame, err := g.link.ReadFrame()
		if err != nil {
			return
		}
		g.frames.add(frame)
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(frame)})
		g.ch.InjectInbound(0, pkt)
		pkt.DecRef()
	}
}

func (g *Guest) write(frame []byte) error {
	g.writeMu.Lock()
	defer g.writeMu.Unlock()
	var b netstack.Batch
	b.Part(frame)
	b.End()
	return g.link.WriteFrames(&b)
}

// Inject sends a frame of any bytes to the gateway, past the guest's stack.
func (g *Guest) Inject(frame []byte) {
	g.t.Helper()
	if err := g.write(frame); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		g.t.Logf("injecting a frame: %v", err)
	}
}

// Raw leaves a TCP port to the caller's own frames: the stack, which knows of no connection there, does not
// reset what comes to it.
func (g *Guest) Raw(port uint16) { g.raw.Store(port, struct{}{}) }

// Close takes the guest down; its link ends.
func (g *Guest) Close() {
	g.cancel()
	_ = g.link.Close()
	g.wg.Wait()
	g.Stack.Close()
	g.Stack.Wait()
}

// Addr4 is the guest's IPv4 address.
func (g *Guest) Addr4() netip.Addr { return g.cfg.Guest4 }

// Addr6 is the guest's IPv6 address.
func (g *Guest) Addr6() netip.Addr { return g.cfg.Guest6 }

// Config is the gateway's, with its defaults filled in.
func (g *Guest) Config() netstack.Config { return g.cfg }

// MAC is the guest's MAC.
func (g *Guest) MAC() net.HardwareAddr { return g.mac }

// GatewayMAC is the gateway's MAC.
func (g *Guest) GatewayMAC() net.HardwareAddr { return g.cfg.GatewayMAC }
