package netstack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// patience bounds waits for what must happen; nothing is asserted on time.
const patience = time.Minute

var (
	server4 = netip.MustParseAddrPort("203.0.113.7:80")
	server6 = netip.MustParseAddrPort("[2001:db8::7]:80")
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := testContext(t)
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never happened: %s", what)
		case <-time.After(time.Millisecond):
		}
	}
}

// echo accepts and copies back until FIN.
func echo(_ context.Context, f *netstack.TCPFlow) {
	c, err := f.Accept()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = io.Copy(c, struct{ io.Reader }{c})
	_ = c.CloseWrite()
}

// stillServes fails unless a whole exchange works.
func stillServes(t *testing.T, g *netstacktest.Guest, dst netip.AddrPort) {
	t.Helper()
	c, err := g.DialTCP(testContext(t), dst)
	if err != nil {
		t.Fatalf("dial afterwards: %v", err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("alive")); err != nil {
		t.Fatalf("write afterwards: %v", err)
	}
	_ = c.CloseWrite()
	if b, err := io.ReadAll(c); err != nil || string(b) != "alive" {
		t.Fatalf("echo afterwards: %q, %v", b, err)
	}
}

func TestTCPCarriesBytesBothWays(t *testing.T) {
	t.Parallel()
	for name, mtu := range map[string]int{"mtu 1500": 1500, "mtu 65520": netstack.LargeMTU} {
		for _, dst := range []netip.AddrPort{server4, server6} {
			t.Run(name+" "+dst.String(), func(t *testing.T) {
				t.Parallel()
				_, g := netstacktest.Start(t, netstack.Config{MTU: mtu, Handler: &netstacktest.Handler{TCP: echo}})
				c, err := g.DialTCP(testContext(t), dst)
				if err != nil {
					t.Fatalf("dial: %v", err)
				}
				defer func() { _ = c.Close() }()
				want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
				go func() {
					_, _ = c.Write(want)
					_ = c.CloseWrite()
				}()
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, want) {
					t.Fatalf("got %d bytes, %v; want the %d that were sent", len(got), err, len(want))
				}
			})
		}
	}
}

func TestLargeFramesFitSmallMTUs(t *testing.T) {
	t.Parallel()
	_, g := netstacktest.Start(t, netstack.Config{LargeFrames: true, Handler: &netstacktest.Handler{TCP: echo}})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer func() { _ = c.Close() }()
	const size = 4 << 20
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, c); err != nil || n != size {
		t.Fatalf("got %d bytes, %v; want %d", n, err, size)
	}
	largest := 0
	for _, f := range g.Frames() {
		largest = max(largest, len(f))
	}
	if largest <= 1514 || largest > netstack.MaxFrame {
		t.Fatalf("largest frame to the guest has %d bytes, want more than 1514 and at most %d", largest, netstack.MaxFrame)
	}
}

func TestTCPRejectIsFeltAtOnce(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		TCP: func(_ context.Context, f *netstack.TCPFlow) { asked.Add(1); f.Reject(); f.Reject() },
	}})
	for _, dst := range []netip.AddrPort{server4, server6, netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("169.254.169.254:80")} {
		if dst.Addr().IsLoopback() {
			continue // the guest's own stack does not send it; see TestLoopbackDestinationReachesTheHandler
		}
		_, err := g.DialTCP(testContext(t), dst)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: dial: %v, want a refusal", dst, err)
		}
	}
	if asked.Load() != 3 {
		t.Errorf("handler was asked %d times, want once for each SYN", asked.Load())
	}
}

func TestHandlerThatDoesNothingRejects(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{}})
	if _, err := g.DialTCP(testContext(t), server4); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("dial: %v, want a refusal", err)
	}
	eventually(t, "no connection left", func() bool { return s.Stats().TCPConnections == 0 })
}

func TestAcceptAfterRejectFails(t *testing.T) {
	t.Parallel()
	got := make(chan error, 2)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		TCP: func(_ context.Context, f *netstack.TCPFlow) {
			f.Reject()
			_, err := f.Accept()
			got <- err
		},
	}})
	_, _ = g.DialTCP(testContext(t), server4)
	if err := <-got; !errors.Is(err, netstack.ErrFlowDone) {
		t.Fatalf("Accept after Reject: %v, want ErrFlowDone", err)
	}
}

func TestServersTakeManyConnections(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Limits: netstack.Limits{TCPConnections: 64}, Handler: &netstacktest.Handler{TCP: echo}})
	for i := range 500 {
		c, err := g.DialTCP(testContext(t), server4)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		_ = c.CloseWrite()
		if _, err := io.ReadAll(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		_ = c.Close()
	}
	eventually(t, "no connection left", func() bool { return s.Stats().TCPConnections == 0 })
}

func TestDialGuestReachesAListener(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{}})
	l, err := g.ListenTCP(8080)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write([]byte("hello"))
		_ = c.Close()
	}()
	c, err := s.DialGuest(testContext(t), netip.Addr{}, 8080)
	if err != nil {
		t.Fatalf("DialGuest: %v", err)
	}
	defer func() { _ = c.Close() }()
	if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
		t.Fatalf("got %q, %v", b, err)
	}
	if _, err := s.DialGuest(testContext(t), netip.Addr{}, 8081); err == nil {
		t.Fatal("DialGuest to a closed port worked")
	}
}

func TestTransfersLoseNothingWhenQueued(t *testing.T) {
	t.Parallel()
	s, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{TCP: func(_ context.Context, f *netstack.TCPFlow) {
		c, err := f.Accept()
		if err != nil {
			return
		}
		_, _ = c.Write(make([]byte, 8<<20)) // thousands of frames at once
		_ = c.Close()
	}}})
	for range 4 {
		c, err := g.DialTCP(testContext(t), server4)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, c); err != nil || n != 8<<20 {
			t.Fatalf("got %d bytes, %v", n, err)
		}
		_ = c.Close()
	}
	if n := s.Stats().Unsent; n != 0 {
		t.Errorf("%d frames were dropped on the way to a guest that reads", n)
	}
}
