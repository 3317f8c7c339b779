package netstack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/netstack/netstacktest"
)

func TestI3_AnyFrameLeavesTheStackServing(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{TCP: echo}})
	rng := rand.New(rand.NewPCG(1, 2))
	valid := synPacket{src: g.Addr4(), dst: server4.Addr(), sport: 1, dport: 2}.frame(g, flagSYN)
	for n := range 64 {
		g.Inject(valid[:min(n, len(valid))])
	}
	for range 20_000 {
		f := append([]byte(nil), valid...)
		for range 1 + rng.IntN(4) { // past the guard, into gVisor
			f[14+rng.IntN(len(f)-14)] = byte(rng.Uint32())
		}
		g.Inject(f)
	}
	g.Inject(make([]byte, netstack.MaxFrame+1))
	g.Inject(make([]byte, 1<<20))
	stillServes(t, g, server4)
	if st := s.Stats(); st.Drops[frameguard.DropShort.Reason()] != 14 || st.Drops[frameguard.DropLong.Reason()] != 2 {
		t.Errorf("drops %v, want 14 short and 2 long", st.Drops)
	}
}

func TestI3_BadLengthPrefixesEndLinks(t *testing.T) {
	t.Parallel()
	s, err := netstack.New(netstack.Config{GuestMAC: netstacktest.MAC, Handler: &netstacktest.Handler{TCP: echo}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	gateway, liar := netstacktest.Pair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(gateway)) }()
	for _, n := range []uint32{0, 1, 13} {
		_, _ = liar.Write(append(binary.BigEndian.AppendUint32(nil, n), make([]byte, n)...))
	}
	_, _ = liar.Write([]byte{0xff, 0xff, 0xff, 0xff, 1, 2, 3})
	if err := <-served; !errors.Is(err, netstack.ErrFraming) {
		t.Fatalf("Serve: %v, want ErrFraming", err)
	}

	next, guest := netstacktest.Pair(t)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(next)) }()
	g := netstacktest.NewGuest(t, guest, s.Config())
	stillServes(t, g, server4)
	g.Close()
	if err := <-served; err != nil {
		t.Fatalf("Serve after the peer has gone: %v", err)
	}
}

func TestI11_SYNFloodIsAnsweredWithResets(t *testing.T) {
	t.Parallel()
	const bound, flood = 32, 20_000
	release := make(chan struct{})
	h := &netstacktest.Handler{TCP: func(ctx context.Context, f *netstack.TCPFlow) {
		if f.Dst() == server6 {
			echo(ctx, f)
			return
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
	}}
	s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{TCPConnections: 2 * bound, TCPInFlight: bound}, Handler: h})
	for i := range flood {
		g.Inject(synPacket{src: g.Addr4(), dst: server4.Addr(), sport: uint16(1024 + i), dport: 80}.frame(g, flagSYN))
		if i%1000 == 0 && s.Stats().TCPConnections > bound {
			t.Fatalf("%d connections in flight, want at most %d", s.Stats().TCPConnections, bound)
		}
	}
	if _, err := g.WaitFrame(testContext(t), func(f []byte) bool {
		return len(f) >= 54 && f[12] == 8 && f[13] == 0 && f[23] == 6 && header.TCPFlags(f[47]).Contains(header.TCPFlagRst)
	}); err != nil {
		t.Errorf("no RST came back: %v", err)
	}
	close(release)
	eventually(t, "flood handled", func() bool { return s.Stats().TCPConnections == 0 })
	stillServes(t, g, server6)
	if s.Stats().Limited[netstack.LimitTCPInFlight] == 0 || len(h.Events()) == 0 {
		t.Errorf("the bound was not reported: %+v, %v", s.Stats(), h.Events())
	}
}

func TestI11_HalfOpenFloodsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	var ended atomic.Int32
	s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{TCPConnections: 8}, Handler: &netstacktest.Handler{
		TCP: func(ctx context.Context, f *netstack.TCPFlow) {
			echo(ctx, f)
			ended.Add(1)
		},
	}})
	p := synPacket{src: g.Addr4(), dst: server4.Addr(), dport: 80, seq: 7}
	for i := range 8 { // accepted, so that SYN-ACKs go out; the guest's stack answers those with RST
		p.sport = uint16(2000 + i)
		g.Inject(p.frame(g, flagSYN))
	}
	eventually(t, "half-open connections gone", func() bool { return ended.Load() == 8 && s.Stats().TCPConnections == 0 })
	stillServes(t, g, server4)
}

func TestSilentReadersHoldUpNobody(t *testing.T) {
	t.Parallel()
	s, err := netstack.New(netstack.Config{GuestMAC: netstacktest.MAC, Handler: &netstacktest.Handler{}})
	if err != nil {
		t.Fatal(err)
	}
	gateway, vmm := netstacktest.Pair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(gateway)) }()
	cfg := s.Config()
	echoRequest := append(append(append([]byte(nil), cfg.GatewayMAC...), cfg.GuestMAC...), 8, 0)
	echoRequest = append(echoRequest, ipv4(cfg.Guest4, cfg.Gateway4, 1, append([]byte{8, 0, 0xf7, 0xff}, make([]byte, 1000)...))...)
	framed := append(binary.BigEndian.AppendUint32(nil, uint32(len(echoRequest))), echoRequest...)
	const pings = 40_000 // their answers fill every buffer many times over
	for range pings {
		_ = vmm.SetWriteDeadline(time.Now().Add(patience))
		if _, err := vmm.Write(framed); err != nil {
			t.Fatalf("the gateway stopped reading: %v", err)
		}
	}
	eventually(t, "all read", func() bool { return s.Stats().FramesFromGuest == pings })
	if s.Stats().Unsent == 0 {
		t.Error("no frame was dropped, so memory was not bounded")
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close with a guest that never reads: %v", err)
	}
	<-served
}

func TestI11_FragmentsThatNeverEndAreBounded(t *testing.T) { // not parallel: it measures this process's memory
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{TCP: echo, UDP: echoUDP}})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const count = 30_000
	for i := range count {
		p := ipv4(g.Addr4(), server4.Addr(), 17, make([]byte, 1400))
		binary.BigEndian.PutUint16(p[4:], uint16(i))                      // another packet each time
		binary.BigEndian.PutUint16(p[6:], 0x2000|uint16(i%3)*uint16(100)) // more fragments; overlaps
		h := header.IPv4(p)
		h.SetChecksum(0)
		h.SetChecksum(^h.CalculateChecksum())
		g.Inject(eth(g, p))
	}
	eventually(t, "all read", func() bool { return s.Stats().FramesFromGuest >= count })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	stillServes(t, g, server4)
}

func TestDHCPServesTheLeasedMACOnly(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{DHCP: true, Handler: &netstacktest.Handler{TCP: echo}})
	discover := func(mac net.HardwareAddr, kind byte) []byte {
		m := make([]byte, 240, 300)
		m[0], m[1], m[2] = 1, 1, 6
		copy(m[28:], mac)
		copy(m[236:], []byte{99, 130, 83, 99})
		m = append(m, 53, 1, kind, 255)
		src, dst := netip.MustParseAddrPort("0.0.0.0:68"), netip.MustParseAddrPort("255.255.255.255:67")
		f := eth(g, ipv4(src.Addr(), dst.Addr(), 17, udp(src, dst, m)))
		copy(f, bytes.Repeat([]byte{255}, 6))
		return f
	}
	for i := range 1000 {
		g.Inject(discover(net.HardwareAddr{2, 9, 9, 9, byte(i >> 8), byte(i)}, 1))
	}
	eventually(t, "the flood dropped", func() bool { return s.Stats().Drops[frameguard.DropDHCP.Reason()] == 1000 })
	var offer []byte
	eventually(t, "an offer", func() bool { // the flood has spent the rate
		g.Inject(discover(g.MAC(), 1))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		var err error
		offer, err = g.WaitFrame(ctx, func(f []byte) bool { return len(f) > 42+240 && f[23] == 17 && f[37] == 68 })
		return err == nil
	})
	if got := netip.AddrFrom4([4]byte(offer[42+16 : 42+20])); got != g.Addr4() {
		t.Errorf("offered %s, want %s", got, g.Addr4())
	}
	stillServes(t, g, server4)
}

func TestRouterSolicitationIsAnswered(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, netstack.Config{RouterAdvertisements: true, Handler: &netstacktest.Handler{}})
	src, dst := netip.MustParseAddr("fe80::ff:fe00:2"), netip.MustParseAddr("ff02::2")
	f := eth(g, ipv6(src, dst, 58, 255, icmp6(src, dst, []byte{133, 0, 0, 0, 0, 0, 0, 0})))
	copy(f, []byte{0x33, 0x33, 0, 0, 0, 2})
	g.Inject(f)
	advert, err := g.WaitFrame(testContext(t), func(f []byte) bool { return len(f) > 70 && f[12] == 0x86 && f[54] == 134 })
	if err != nil {
		t.Fatalf("no advertisement: %v", err)
	}
	if !bytes.Contains(advert, netip.MustParseAddr("fd6d:7362::").AsSlice()) {
		t.Errorf("the advertisement lacks the prefix: %x", advert)
	}
}

func TestPingsReachGatewayAndHandler(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{Echo: func(_ context.Context, p *netstack.PingFlow) {
		if p.Dst() == server4.Addr() || p.Dst() == server6.Addr() {
			_ = p.Reply()
		} else {
			p.Reject()
		}
	}}})
	cfg := g.Config()
	for _, dst := range []netip.Addr{cfg.Gateway4, cfg.Gateway6, server4.Addr(), server6.Addr()} {
		if err := g.Ping(testContext(t), dst, []byte("some payload")); err != nil {
			t.Error(err)
		}
	}
	go func() { _ = g.Ping(testContext(t), netip.MustParseAddr("198.51.100.1"), []byte("x")) }()
	if _, err := g.WaitFrame(testContext(t), func(f []byte) bool { return len(f) > 36 && f[23] == 1 && f[34] == 3 && f[35] == 13 }); err != nil {
		t.Errorf("a rejected ping was not answered: %v", err)
	}
}

// TestI11_ICMPErrorsAreBounded: a guest that sends what is refused is answered 200 times at once and 1,000 times a second
// (RFC 1812, section 4.3.2.8).
func TestI11_ICMPErrorsAreBounded(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{}})
	const sent = 3000
	began := time.Now()
	for range sent {
		g.Inject(eth(g, ipv4(g.Addr4(), server4.Addr(), 47, make([]byte, 20))))
	}
	ctx := testContext(t)
	for s.Stats().Drops[frameguard.DropProtocol.Reason()] != sent { // all of them are answered, or not
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		runtime.Gosched()
	}
	most := 200 + int(1000*time.Since(began).Seconds()) + 1
	answered := 0
	for _, f := range g.Frames() {
		if len(f) > 36 && f[23] == 1 && f[34] == 3 {
			answered++
		}
	}
	if answered == 0 || answered > most {
		t.Errorf("%d errors for %d packets, want at most %d in %s", answered, sent, most, time.Since(began))
	}
}

func TestUnknownProtocolIsAnsweredUnreachable(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{}})
	g.Inject(eth(g, ipv4(g.Addr4(), server4.Addr(), 47, make([]byte, 20))))
	if _, err := g.WaitFrame(testContext(t), func(f []byte) bool { return len(f) > 36 && f[23] == 1 && f[34] == 3 && f[35] == 2 }); err != nil {
		t.Errorf("no protocol unreachable: %v", err)
	}
	for ctx := testContext(t); s.Stats().Drops[frameguard.DropProtocol.Reason()] != 1; { // it is counted once it was answered
		select {
		case <-ctx.Done():
			t.Fatalf("drops %v", s.Stats().Drops)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestLoopbackDestinationReachesTheHandler(t *testing.T) {
	t.Parallel()
	asked := make(chan netip.AddrPort, 8)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{TCP: func(_ context.Context, f *netstack.TCPFlow) { asked <- f.Dst() }}})
	for _, dst := range []string{"127.0.0.1", "127.1.2.3", "::1", "169.254.169.254", "10.0.0.1", "fe80::77"} {
		a := netip.MustParseAddr(dst)
		src := g.Addr4()
		if a.Is6() {
			src = g.Addr6()
		}
		g.Inject(synPacket{src: src, dst: a, sport: 3000, dport: 80}.frame(g, flagSYN))
		select {
		case got := <-asked:
			if got.Addr() != a {
				t.Errorf("asked about %s, want %s", got, a)
			}
		case <-testContext(t).Done():
			t.Fatalf("%s was lost in silence", dst)
		}
	}
}

func TestEgressRateSlowsTheGuestDown(t *testing.T) {
	t.Parallel()
	const rate, size = 4 << 20, 2 << 20
	_, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{EgressRate: rate}, Handler: &netstacktest.Handler{TCP: echo}})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	start := time.Now()
	go func() { _, _ = c.Write(make([]byte, size)); _ = c.CloseWrite() }()
	if n, err := io.Copy(io.Discard, c); err != nil || n != size {
		t.Fatalf("got %d bytes, %v", n, err)
	}
	// A lower bound only: a slow machine can't make it fail.
	if took := time.Since(start); took < (size-rate/5)*time.Second/rate {
		t.Errorf("%d bytes took %s at %d bytes/s", size, took, rate)
	}
}
