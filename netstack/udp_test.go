package netstack_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// echoUDP sends datagrams back until the flow ends.
func echoUDP(_ context.Context, f *netstack.UDPFlow) {
	c, err := f.Accept()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 65536)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		_, _ = c.Write(buf[:n])
	}
}

func TestUDPCarriesDatagramsBothWays(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{UDP: echoUDP}})
	for _, dst := range []netip.AddrPort{server4, server6} {
		c, err := g.DialUDP(dst)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		for _, size := range []int{0, 1, 1000, 5000, 60000, 60000, 60000, 60000, 60000} { // more in sum than a queue holds, the larger ones in fragments
			if size == 0 {
				continue // gVisor's socket cannot tell an empty datagram from none
			}
			if _, err := c.Write(make([]byte, size)); err != nil {
				t.Fatalf("%s: write %d: %v", dst, size, err)
			}
			buf := make([]byte, 65536)
			if n, err := c.Read(buf); err != nil || n != size {
				t.Fatalf("%s: got %d bytes, %v; want %d", dst, n, err, size)
			}
		}
		_ = c.Close()
	}
}

func TestDeniedUDPIsFeltAtOnce(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{}})
	for _, dst := range []netip.AddrPort{server4, server6} {
		c, err := g.DialUDP(dst)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("x"))
		want := []byte{3, 13}
		at := 14 + 20
		if dst.Addr().Is6() {
			want, at = []byte{1, 1}, 14+40
		}
		f, err := g.WaitFrame(testContext(t), func(f []byte) bool {
			return len(f) > at+8+28 && f[at] == want[0] && f[at+1] == want[1]
		})
		if err != nil {
			t.Fatalf("%s: no ICMP administratively prohibited: %v", dst, err)
		}
		_ = f
		_ = c.Close()
	}
}

func TestDroppedUDPIsJudgedOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		UDP: func(_ context.Context, f *netstack.UDPFlow) {
			if f.Dst() == server6 {
				echoUDP(context.Background(), f)
				return
			}
			asked.Add(1)
			f.Drop()
		},
	}})
	c, err := g.DialUDP(server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for range 20 {
		_, _ = c.Write([]byte("x"))
	}
	udpStillServes(t, g)
	eventually(t, "the handler asked", func() bool { return asked.Load() > 0 })
	if n := asked.Load(); n < 1 || n > 2 {
		t.Errorf("handler was asked %d times for one flow", n)
	}
	for _, f := range g.Frames() {
		if len(f) > 34 && f[12] == 8 && f[13] == 0 && f[23] == 1 {
			t.Errorf("an ICMP message came back: %x", f)
		}
	}
}

// udpStillServes exchanges a datagram with server6.
func udpStillServes(t *testing.T, g *netstacktest.Guest) {
	t.Helper()
	c, err := g.DialUDP(server6)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	buf := make([]byte, 16)
	ctx := testContext(t)
	for ctx.Err() == nil { // UDP may be lost where a flood fills the queues
		_, _ = c.Write([]byte("alive"))
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(buf); err == nil && string(buf[:n]) == "alive" {
			return
		}
	}
	t.Fatal("UDP is not served any more")
}

func TestI11_UDPFlowsAreBounded(t *testing.T) {
	const flows, bound = 100_000, 64
	h := &netstacktest.Handler{UDP: echoUDP}
	s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{UDPFlows: bound, UDPIdle: time.Minute}, Handler: h})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range flows {
		src := netip.AddrPortFrom(g.Addr4(), uint16(1024+i%60000))
		dst := netip.AddrPortFrom(server4.Addr(), uint16(1000+i/60000))
		g.Inject(eth(g, ip(src.Addr(), dst.Addr(), 17, udp(src, dst, []byte("flood")))))
		if i%10_000 == 0 && s.Stats().UDPFlows > bound {
			t.Fatalf("%d flows, want at most %d", s.Stats().UDPFlows, bound)
		}
	}
	eventually(t, "all frames read", func() bool { return s.Stats().FramesFromGuest >= flows })
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	st := s.Stats()
	if st.UDPFlows > bound || st.Limited[netstack.LimitUDPFlows] == 0 || len(h.Events()) == 0 {
		t.Errorf("stats %+v, %d events", st, len(h.Events()))
	}
	c, err := g.DialTCP(testContext(t), server4) // rejected, and so alive
	if err == nil {
		_ = c.Close()
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Error("TCP is not served any more")
	}
}

func TestUDPFlowEndsWhenIdle(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	s, g := netstacktest.Start(t, netstack.Config{
		Limits: netstack.Limits{DNSIdle: 30 * time.Millisecond},
		Handler: &netstacktest.Handler{UDP: func(ctx context.Context, f *netstack.UDPFlow) {
			c, err := f.Accept()
			if err != nil {
				got <- err
				return
			}
			buf := make([]byte, 16)
			for err == nil {
				_, err = c.Read(buf)
			}
			<-ctx.Done()
			got <- err
		}},
	})
	c, err := g.DialUDP(netip.AddrPortFrom(server4.Addr(), 53))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("query"))
	if err := <-got; !errors.Is(err, io.EOF) {
		t.Errorf("read of an idle flow: %v, want io.EOF", err)
	}
	eventually(t, "no flow left", func() bool { return s.Stats().UDPFlows == 0 })
}

func TestUDPReadDeadline(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{UDP: func(_ context.Context, f *netstack.UDPFlow) {
		c, err := f.Accept()
		if err != nil {
			got <- err
			return
		}
		_, _ = c.Read(make([]byte, 16))
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err = c.Read(make([]byte, 16))
		got <- err
	}}})
	c, err := g.DialUDP(server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("x"))
	if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read past its deadline: %v", err)
	}
}
