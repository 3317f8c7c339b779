package netstack_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/netstack/netstacktest"
)

func TestI12_ConfigNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	for name, c := range map[string]struct {
		change func(*netstack.Config)
		want   string // "" is a good one
	}{
		"the defaults":          {func(*netstack.Config) {}, ""},
		"no handler":            {func(c *netstack.Config) { c.Handler = nil }, "no Handler"},
		"a short MAC":           {func(c *netstack.Config) { c.GuestMAC = net.HardwareAddr{2, 0, 0} }, "not a unicast MAC"},
		"a group's MAC":         {func(c *netstack.Config) { c.GatewayMAC = net.HardwareAddr{3, 0, 0, 0, 0, 1} }, "not a unicast MAC"},
		"one MAC for both":      {func(c *netstack.Config) { c.GuestMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}; c.GatewayMAC = c.GuestMAC }, "share the MAC"},
		"one IPv4 for both":     {func(c *netstack.Config) { c.Guest4, c.Gateway4 = addr("10.0.0.1"), addr("10.0.0.1") }, "two addresses"},
		"another prefix":        {func(c *netstack.Config) { c.Guest4, c.Gateway4, c.Prefix4 = addr("10.0.1.2"), addr("10.0.0.1"), 24 }, "inside 10.0.0.0/24"},
		"a wider prefix":        {func(c *netstack.Config) { c.Guest4, c.Gateway4, c.Prefix4 = addr("10.0.1.2"), addr("10.0.0.1"), 23 }, ""},
		"only one IPv4":         {func(c *netstack.Config) { c.Guest4 = addr("10.0.0.2") }, "gateway"},
		"IPv6 for IPv4":         {func(c *netstack.Config) { c.Guest4, c.Gateway4 = addr("fd00::2"), addr("fd00::1") }, "two addresses"},
		"IPv4 for IPv6":         {func(c *netstack.Config) { c.Guest6, c.Gateway6, c.Prefix6 = addr("10.0.0.2"), addr("10.0.0.1"), 24 }, "two addresses"},
		"mapped IPv4 for IPv6":  {func(c *netstack.Config) { c.Guest6, c.Gateway6 = addr("::ffff:10.0.0.2"), addr("::ffff:10.0.0.1") }, "two addresses"},
		"another IPv6 prefix":   {func(c *netstack.Config) { c.Guest6, c.Gateway6 = addr("fd00:1::2"), addr("fd00::1") }, "inside fd00::/64"},
		"a prefix of 33 bits":   {func(c *netstack.Config) { c.Prefix4 = 33 }, "/33"},
		"the smallest MTU":      {func(c *netstack.Config) { c.MTU = 1280 }, ""},
		"a smaller MTU":         {func(c *netstack.Config) { c.MTU = 1279 }, "from 1280 to 65520"},
		"the largest MTU":       {func(c *netstack.Config) { c.MTU = netstack.LargeMTU }, ""},
		"a larger MTU":          {func(c *netstack.Config) { c.MTU = netstack.LargeMTU + 1 }, "from 1280 to 65520"},
		"one connection":        {func(c *netstack.Config) { c.Limits.TCPConnections = 1 }, ""},
		"addresses of a policy": {func(c *netstack.Config) { c.Guest4, c.Gateway4 = addr("10.9.0.2"), addr("10.9.0.1") }, ""},
	} {
		cfg := netstack.Config{Handler: &netstacktest.Handler{}}
		c.change(&cfg)
		s, err := netstack.New(cfg)
		switch {
		case c.want == "" && err != nil, c.want != "" && (!errors.Is(err, netstack.ErrConfig) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case err == nil:
			got := s.Config()
			if got.Limits.TCPInFlight > got.Limits.TCPConnections || got.Limits.UDPFlows == 0 || got.Limits.Pings == 0 || got.MTU == 0 || got.DNS != got.Gateway4 {
				t.Errorf("%s: %+v", name, got)
			}
			if cfg.Guest4.IsValid() && got.Guest4 != cfg.Guest4 {
				t.Errorf("%s: the guest has %s, want %s", name, got.Guest4, cfg.Guest4)
			}
			_ = s.Close()
		}
	}
}

// TestI11_ClosedConnectionsFreeTheirSlot: TIME-WAIT, in which the guest owes nothing more, holds none.
func TestI11_ClosedConnectionsFreeTheirSlot(t *testing.T) {
	t.Parallel()
	h, conns := accepted()
	s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{TCPConnections: 1}, Handler: h})
	guest, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	host := <-conns
	if host.LocalAddr().String() != server4.String() || host.RemoteAddr().String() != guest.LocalAddr().String() {
		t.Errorf("a connection from %s to %s", host.RemoteAddr(), host.LocalAddr())
	}
	if _, err := g.DialTCP(testContext(t), server6); err == nil {
		t.Error("a second connection was accepted")
	}
	if e := h.Events(); len(e) != 1 || e[0].Kind != netstack.LimitTCPConnections || e[0].Dst != server6 || e[0].Protocol != "tcp" {
		t.Errorf("events %+v", e)
	}
	_ = host.Close()
	if _, err := io.ReadAll(guest); err != nil {
		t.Fatal(err)
	}
	if n := s.Stats().TCPConnections; n != 1 {
		t.Errorf("%d slots are taken while the guest hasn't closed, want 1", n)
	}
	_ = guest.Close()
	// With the last acknowledgement the guest's end is gone, and the gateway's is in TIME-WAIT.
	eventually(t, "the guest's end closed", func() bool { return len(g.Stack.RegisteredEndpoints()) == 0 })
	if n := s.Stats().TCPConnections; n != 0 {
		t.Errorf("%d slots are taken after both ends closed", n)
	}
}

// closing is a tap that lets one frame through to the stack only when the stack is closing.
type closing struct {
	begin func(frame []byte) bool
	ended <-chan struct{}
}

func (c *closing) Frame(dir netstack.Direction, frame []byte, _ frameguard.Reason) {
	if dir == netstack.FromGuest && c.begin(frame) {
		<-c.ended
	}
}

// TestI11_NothingStartsWhileTheStackCloses has a frame under way when Close begins.
func TestI11_NothingStartsWhileTheStackCloses(t *testing.T) {
	t.Parallel()
	const lastPort = 4711 // of the frame that comes too late
	for _, proto := range []string{"tcp", "udp"} {
		var stack atomic.Pointer[netstack.Stack]
		var once sync.Once
		var late atomic.Int32
		first, ended := make(chan struct{}), make(chan struct{})
		note := func(dst netip.AddrPort, ctx context.Context) {
			if dst.Port() == lastPort {
				late.Add(1)
				return
			}
			close(first)
			<-ctx.Done()
			close(ended)
		}
		tap := &closing{ended: ended, begin: func(frame []byte) bool {
			if len(frame) < 38 || binary.BigEndian.Uint16(frame[36:]) != lastPort {
				return false
			}
			once.Do(func() { go func() { _ = stack.Load().Close() }() })
			return true
		}}
		h := &netstacktest.Handler{
			TCP: func(ctx context.Context, f *netstack.TCPFlow) { note(f.Dst(), ctx) },
			UDP: func(ctx context.Context, f *netstack.UDPFlow) { note(f.Dst(), ctx) },
		}
		s, g := netstacktest.Start(t, netstack.Config{Handler: h, Tap: tap})
		stack.Store(s)
		send := func(port uint16) {
			if proto == "tcp" {
				g.Inject(synPacket{src: g.Addr4(), dst: server4.Addr(), sport: 4000, dport: port}.frame(g, flagSYN))
				return
			}
			src, dst := netip.AddrPortFrom(g.Addr4(), 4000), netip.AddrPortFrom(server4.Addr(), port)
			g.Inject(eth(g, ip(src.Addr(), dst.Addr(), 17, udp(src, dst, []byte("x")))))
		}
		send(80)
		<-first
		send(lastPort)
		<-ended
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if st := s.Stats(); late.Load() != 0 || st.TCPConnections+st.UDPFlows != 0 {
			t.Errorf("%s: %d flows began while the stack closed, %d connections and %d flows are left", proto, late.Load(), st.TCPConnections, st.UDPFlows)
		}
	}
}

// TestI11_DatagramsThatNobodyReadsAreBounded fills a flow's queue by number and by bytes.
func TestI11_DatagramsThatNobodyReadsAreBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, sent, kept int }{{1, 130, 128}, {60_000, 6, 4}, {1 << 15, 10, 8}} {
		flows := make(chan *netstack.UDPFlow, 1)
		h := &netstacktest.Handler{UDP: func(ctx context.Context, f *netstack.UDPFlow) {
			if _, err := f.Accept(); err != nil {
				t.Error(err)
			}
			flows <- f
			<-ctx.Done()
		}}
		_, g := netstacktest.Start(t, netstack.Config{MTU: netstack.LargeMTU, Handler: h})
		src := netip.AddrPortFrom(g.Addr4(), 4000)
		send := func() {
			g.Inject(eth(g, ip(src.Addr(), server4.Addr(), 17, udp(src, server4, make([]byte, c.size)))))
		}
		for range c.sent {
			send()
		}
		f := <-flows
		eventually(t, "the last datagrams lost", func() bool { return len(h.Events()) == c.sent-c.kept })
		if e := h.Events()[0]; e.Kind != netstack.LimitUDPQueue || e.Src != src || e.Dst != server4 || f.Src() != src {
			t.Errorf("%+v", e)
		}
		if n := f.Drain(); n != c.kept {
			t.Errorf("%d datagrams of %d bytes were kept, want %d", n, c.size, c.kept)
		}
		send()
		eventually(t, "no room after Drain", func() bool { return len(h.Events()) == c.sent-c.kept+1 })
		if n := f.Drain(); n != 0 {
			t.Errorf("%d datagrams came after Drain", n)
		}
	}
}

// TestUDPConnActsLikePackageNet has the errors of a socket, and takes its deadlines back.
func TestUDPConnActsLikePackageNet(t *testing.T) {
	t.Parallel()
	conns := make(chan *netstack.UDPConn, 1)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{UDP: func(ctx context.Context, f *netstack.UDPFlow) {
		c, err := f.Accept()
		if err != nil {
			t.Error(err)
		}
		if _, err := f.Accept(); !errors.Is(err, netstack.ErrFlowDone) {
			t.Errorf("a second Accept: %v", err)
		}
		f.Reject() // does nothing any more
		conns <- c
		<-ctx.Done()
	}}})
	guest, err := g.DialUDP(server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guest.Close() }()
	say := func(s string) { _, _ = guest.Write([]byte(s)) }
	say("first")
	c := <-conns
	buf := make([]byte, 3)
	if n, err := c.Read(buf); err != nil || string(buf[:n]) != "fir" || c.LocalAddr().String() != server4.String() || c.RemoteAddr().String() != guest.LocalAddr().String() {
		t.Errorf("%q, %v from %s to %s", buf[:n], err, c.RemoteAddr(), c.LocalAddr())
	}
	past, far := time.Unix(1, 0), time.Now().Add(time.Hour)
	for _, d := range []struct {
		set         func(time.Time) error
		read, write bool // what it ends
	}{{c.SetDeadline, true, true}, {c.SetReadDeadline, true, false}, {c.SetWriteDeadline, false, true}} {
		for _, t1 := range []time.Time{past, {}, past, far} {
			_ = d.set(t1)
			over := t1.Equal(past)
			if _, err := c.Write([]byte("x")); errors.Is(err, os.ErrDeadlineExceeded) != (over && d.write) {
				t.Errorf("write with the deadline %v: %v", t1, err)
			}
			say("y")
			if _, err := c.Read(buf); errors.Is(err, os.ErrDeadlineExceeded) != (over && d.read) {
				t.Errorf("read with the deadline %v: %v", t1, err)
			} else if err != nil { // it waits in the queue
				_ = d.set(time.Time{})
				if _, err := c.Read(buf); err != nil {
					t.Errorf("read after the deadline was taken back: %v", err)
				}
			}
		}
		_ = d.set(time.Time{})
	}
	const largest = 65535 - 20 - 8
	if _, err := c.Write(make([]byte, largest+1)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("more than an IPv4 packet holds: %v", err)
	}
	if n, err := c.Write(make([]byte, largest)); err != nil || n != largest {
		t.Errorf("what an IPv4 packet holds: %v", err)
	}
	_ = c.Close()
	if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: %v", err)
	}
	if _, err := c.Read(buf); !errors.Is(err, io.EOF) {
		t.Errorf("read after Close: %v", err)
	}
}

// TestDontFragmentGetsTooBig has datagrams with and without DF, small and large, of both families.
func TestDontFragmentGetsTooBig(t *testing.T) {
	t.Parallel()
	answers := make(chan bool, 1)
	var mtu atomic.Int64
	_, g := netstacktest.Start(t, netstack.Config{MTU: netstack.LargeMTU, Handler: &netstacktest.Handler{UDP: func(_ context.Context, f *netstack.UDPFlow) {
		c, err := f.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Read(make([]byte, 1<<16))
		answers <- c.TooBig(int(mtu.Load()))
	}}})
	port := uint16(5000)
	for _, c := range []struct {
		six, df   bool
		size, mtu int
		want      int // 0 for none
	}{
		{false, true, 1232, 1400, 0}, {false, true, 1233, 1400, 1400}, {false, false, 3000, 1400, 0}, {false, true, 3000, 551, 552}, {false, true, 3000, 553, 553},
		{true, false, 1232, 1400, 0}, {true, false, 1233, 1400, 1400}, {true, false, 60_000, 1280, 1280},
	} {
		port++
		mtu.Store(int64(c.mtu))
		src, dst, at, kind := netip.AddrPortFrom(g.Addr4(), port), server4, 34, byte(3)
		if c.six {
			src, dst, at, kind = netip.AddrPortFrom(g.Addr6(), port), server6, 54, 2
		}
		packet := ip(src.Addr(), dst.Addr(), 17, udp(src, dst, make([]byte, c.size)))
		if c.df {
			packet[6] |= 0x40
			sum := uint32(binary.BigEndian.Uint16(packet[10:])) + 0xffff - 0x4000 // RFC 1624
			binary.BigEndian.PutUint16(packet[10:], uint16(sum&0xffff+sum>>16))
		}
		g.Inject(eth(g, packet))
		if got := <-answers; got != (c.want > 0) {
			t.Errorf("%+v: %v", c, got)
			continue
		}
		if c.want == 0 {
			continue
		}
		f, err := g.WaitFrame(testContext(t), func(f []byte) bool {
			return len(f) > at+8+at-14+2 && f[at] == kind && binary.BigEndian.Uint16(f[at+8+at-14:]) == port
		})
		if err != nil {
			t.Fatalf("%+v: no ICMP error: %v", c, err)
		}
		if got := int(binary.BigEndian.Uint16(f[at+6:])); got != c.want || c.six != (f[at+1] == 0) || !c.six && f[at+1] != 4 || len(f) > 14+1280 {
			t.Errorf("%+v: %d in %x", c, got, f[:at+8])
		}
	}
}

// TestUnknownIPv6GetsParameterProblem points at the header that names the protocol (RFC 4443, section 3.4).
func TestUnknownIPv6GetsParameterProblem(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{}})
	g.Inject(eth(g, ipv6(g.Addr6(), server6.Addr(), 47, 64, make([]byte, 20))))
	if _, err := g.WaitFrame(testContext(t), func(f []byte) bool { return len(f) > 62 && f[20] == 58 && f[54] == 4 && f[55] == 1 && f[61] == 6 }); err != nil {
		t.Errorf("no parameter problem: %v", err)
	}
}

// TestPingHandlersGetTheEnds has pings handled one at a time, and answered once.
func TestPingHandlersGetTheEnds(t *testing.T) {
	t.Parallel()
	pings, answered := make(chan *netstack.PingFlow), make(chan struct{})
	h := &netstacktest.Handler{Echo: func(ctx context.Context, p *netstack.PingFlow) {
		select {
		case pings <- p:
			<-answered
		case <-ctx.Done():
		}
	}}
	_, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{Pings: 1}, Handler: h})
	echo := func(seq byte) []byte { return []byte{128, 0, 0, 0, 0x12, 0x34, 0x56, seq, 'd', 'a', 't', 'a'} }
	send := func(seq byte) {
		g.Inject(eth(g, ipv6(g.Addr6(), server6.Addr(), 58, 64, icmp6(g.Addr6(), server6.Addr(), echo(seq)))))
	}
	send(1)
	p := <-pings
	send(2)
	eventually(t, "the second ping lost", func() bool { return len(h.Events()) == 1 })
	if e := h.Events()[0]; e.Kind != netstack.LimitPings || e.Src.Addr() != g.Addr6() || e.Dst.Addr() != server6.Addr() {
		t.Errorf("%+v", e)
	}
	if p.Src() != g.Addr6() || p.Dst() != server6.Addr() || p.ID() != 0x1234 || p.Seq() != 0x5601 || string(p.Payload()) != "data" {
		t.Errorf("%s to %s, id %x, seq %x, %q", p.Src(), p.Dst(), p.ID(), p.Seq(), p.Payload())
	}
	if err := p.Reply(); err != nil {
		t.Error(err)
	}
	if err := p.Reply(); !errors.Is(err, netstack.ErrFlowDone) {
		t.Errorf("a second reply: %v", err)
	}
	close(answered)
	if _, err := g.WaitFrame(testContext(t), func(f []byte) bool { return len(f) > 65 && f[54] == 129 && f[61] == 1 && string(f[62:66]) == "data" }); err != nil {
		t.Error(err)
	}
	eventually(t, "a later ping handled, which has no payload", func() bool {
		g.Inject(eth(g, ipv6(g.Addr6(), server6.Addr(), 58, 64, icmp6(g.Addr6(), server6.Addr(), echo(3)[:8]))))
		select {
		case p = <-pings:
			return true
		default:
			return false
		}
	})
}

// TestDeniedDatagramsAreJudgedOnce repeats a denial as it was: answered, or silent.
func TestDeniedDatagramsAreJudgedOnce(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	const denied, dropped = 6001, 6002
	var asked atomic.Int32
	ended := make(chan struct{}, 16)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{UDP: func(_ context.Context, f *netstack.UDPFlow) {
		asked.Add(1)
		if f.Src().Port() == dropped {
			f.Drop()
			f.Reject() // does nothing any more
		} else {
			f.Reject()
		}
		if _, err := f.Accept(); !errors.Is(err, netstack.ErrFlowDone) {
			t.Errorf("Accept afterwards: %v", err)
		}
		ended <- struct{}{}
	}}})
	send := func(port uint16, data string) {
		src := netip.AddrPortFrom(g.Addr4(), port)
		g.Inject(eth(g, ip(src.Addr(), server4.Addr(), 17, udp(src, server4, []byte(data)))))
	}
	prohibited := func(port uint16, data string) func([]byte) bool {
		return func(f []byte) bool {
			return len(f) > 70 && f[34] == 3 && f[35] == 13 && binary.BigEndian.Uint16(f[62:]) == port && strings.HasPrefix(string(f[70:]), data)
		}
	}
	for _, data := range []string{"one", "two", "three"} {
		send(dropped, data)
		if data == "one" {
			<-ended
		}
		send(denied, data)
		if _, err := g.WaitFrame(testContext(t), prohibited(denied, data)); err != nil {
			t.Fatalf("%s: no answer: %v", data, err)
		}
	}
	for _, f := range g.Frames() {
		if prohibited(dropped, "")(f) {
			t.Errorf("what was dropped is answered: %x", f)
		}
	}
	if n := asked.Load(); n < 2 || n > 2 && time.Since(begin) < time.Second { // a denial holds for two
		t.Errorf("the handler was asked %d times, want once for each flow", n)
	}
}

// TestI11_AnsweredQuestionsGiveWay: at the bound, a DNS flow whose question was answered ends for a new one; others don't.
func TestI11_AnsweredQuestionsGiveWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		port    uint16
		answers int
		way     bool
	}{{53, 1, true}, {53, 0, false}, {53, 2, true}, {54, 1, false}} {
		ready, asked := make(chan struct{}, 2), make(chan struct{}, 2)
		h := &netstacktest.Handler{UDP: func(ctx context.Context, f *netstack.UDPFlow) {
			conn, err := f.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			asked <- struct{}{}
			for range c.answers {
				_, _ = conn.Write([]byte("x"))
			}
			ready <- struct{}{}
			<-ctx.Done()
		}}
		s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{UDPFlows: 1}, Handler: h})
		dst := netip.AddrPortFrom(server4.Addr(), c.port)
		send := func(port uint16) {
			src := netip.AddrPortFrom(g.Addr4(), port)
			g.Inject(eth(g, ip(src.Addr(), dst.Addr(), 17, udp(src, dst, []byte("x")))))
		}
		send(6001)
		<-ready
		<-asked
		send(6002)
		if c.way {
			<-asked
		} else {
			eventually(t, "the second flow refused", func() bool { return len(h.Events()) == 1 })
		}
		if n := s.Stats().UDPFlows; n != 1 || (len(h.Events()) == 0) != c.way {
			t.Errorf("%+v: %d flows, events %+v", c, n, h.Events())
		}
	}
}

// TestI11_LiftedRatesReleaseWaiters lifts the rate before its bucket is empty: more than the bucket passes at once.
func TestI11_LiftedRatesReleaseWaiters(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{EgressRate: 1}, Handler: &netstacktest.Handler{TCP: echo}})
	s.SetLimits(netstack.Limits{})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	const size = 4 * netstack.MaxFrame
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, c); n != size {
		t.Errorf("%d bytes of %d came back: %v", n, size, err)
	}
}
