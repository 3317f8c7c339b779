package netstack_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// accepted returns a Handler that hands connections to the test.
func accepted() (*netstacktest.Handler, <-chan *netstack.TCPConn) {
	ch := make(chan *netstack.TCPConn, 1)
	return &netstacktest.Handler{TCP: func(_ context.Context, f *netstack.TCPFlow) {
		if c, err := f.Accept(); err == nil {
			ch <- c
		}
	}}, ch
}

func TestTCPHalfCloseFromEitherSide(t *testing.T) {
	t.Parallel()
	h, conns := accepted()
	_, g := netstacktest.Start(t, netstack.Config{Handler: h})
	guest, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guest.Close() }()
	host := <-conns
	defer func() { _ = host.Close() }()
	_ = guest.CloseWrite()
	if b, err := io.ReadAll(host); err != nil || len(b) != 0 {
		t.Fatalf("after the guest's FIN: %d bytes, %v", len(b), err)
	}
	if _, err := host.Write([]byte("still open")); err != nil {
		t.Fatalf("write after the guest's FIN: %v", err)
	}
	_ = host.CloseWrite()
	if b, err := io.ReadAll(guest); err != nil || string(b) != "still open" {
		t.Fatalf("guest got %q, %v", b, err)
	}
}

func TestTCPResetPassesBothWays(t *testing.T) {
	t.Parallel()
	h, conns := accepted()
	s, g := netstacktest.Start(t, netstack.Config{Handler: h})

	guest, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	host := <-conns
	host.Reset()
	if _, err := io.ReadAll(guest); err == nil {
		t.Error("guest read EOF after Reset, want an error")
	}
	_ = guest.Close()

	h2, conns2 := accepted()
	_, g2 := netstacktest.Start(t, netstack.Config{Handler: h2})
	if _, err := g2.DialTCP(testContext(t), server4); err != nil {
		t.Fatal(err)
	}
	host = <-conns2
	for _, ep := range g2.Stack.RegisteredEndpoints() {
		ep.Abort()
	}
	if _, err := io.ReadAll(host); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("host read %v after the guest's RST, want ECONNRESET", err)
	}
	_ = host.Close()
	eventually(t, "no connection left", func() bool { return s.Stats().TCPConnections == 0 })
}

func TestReadDeadlinesMatchPackageNet(t *testing.T) {
	t.Parallel()
	h, conns := accepted()
	_, g := netstacktest.Start(t, netstack.Config{Handler: h})
	guest, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = guest.Close() }()
	host := <-conns
	defer func() { _ = host.Close() }()
	_ = host.SetReadDeadline(time.Now().Add(-time.Second))
	_, err = host.Read(make([]byte, 1))
	var ne net.Error
	if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("read past its deadline: %v", err)
	}
}

func TestFlowContextsEndWithTheGuest(t *testing.T) {
	t.Parallel()
	started, late, looked, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		TCP: func(ctx context.Context, f *netstack.TCPFlow) {
			if f.Dst() == server4 {
				echo(ctx, f)
				return
			}
			close(started)
			<-late
			if ctx.Err() != nil {
				t.Error("a RST of another connection ended the flow")
			}
			close(looked)
			<-ctx.Done()
			if _, err := f.Accept(); !errors.Is(err, netstack.ErrFlowDone) {
				t.Errorf("Accept after the guest gave up: %v", err)
			}
			close(ended)
		},
	}})
	p := synPacket{src: g.Addr4(), dst: server4.Addr(), sport: 4000, dport: 81, seq: 100}
	g.Inject(p.frame(g, flagSYN))
	<-started
	for _, other := range []uint32{0, 99, 100, 102, 1 << 31} {
		stale := p
		stale.seq = other
		g.Inject(stale.frame(g, flagRST))
	}
	stillServes(t, g, server4) // behind every frame on the link
	close(late)
	<-looked
	p.seq++
	g.Inject(p.frame(g, flagRST))
	<-ended
	eventually(t, "no connection left", func() bool { return s.Stats().TCPConnections == 0 })
}

func TestCloseEndsHandlersAndConnections(t *testing.T) {
	t.Parallel()
	dialing := make(chan struct{})
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		TCP: func(ctx context.Context, f *netstack.TCPFlow) {
			if f.Dst() == server6 {
				close(dialing)
				<-ctx.Done() // as a dial would
				return
			}
			echo(ctx, f)
		},
	}})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = g.DialTCP(testContext(t), server6) }()
	<-dialing
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	_ = c.Close()
	if n := s.Stats().TCPConnections; n != 0 {
		t.Errorf("%d connections after Close", n)
	}
	if _, err := s.DialGuest(testContext(t), netip.Addr{}, 1); !errors.Is(err, netstack.ErrClosed) {
		t.Errorf("DialGuest after Close: %v", err)
	}
}

func TestCloseEndsHandshakesUnderWay(t *testing.T) {
	t.Parallel()
	accepting, accepted := make(chan struct{}), make(chan error, 1)
	s, err := netstack.New(netstack.Config{GuestMAC: netstacktest.MAC, Handler: &netstacktest.Handler{
		TCP: func(_ context.Context, f *netstack.TCPFlow) {
			close(accepting)
			_, err := f.Accept()
			accepted <- err
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	gateway, silent := netstacktest.Pair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(gateway)) }()
	cfg := s.Config()
	p := synPacket{src: cfg.Guest4, dst: server4.Addr(), sport: 4000, dport: 80}
	f := p.frameBetween(cfg.GuestMAC, cfg.GatewayMAC, flagSYN)
	_, _ = silent.Write(append([]byte{0, 0, 0, byte(len(f))}, f...))
	<-accepting
	if _, err := silent.Read(make([]byte, 128)); err != nil { // the SYN-ACK, never answered
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-accepted; err == nil {
		t.Error("Accept worked without a handshake")
	}
	<-served
}
