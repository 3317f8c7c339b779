package netstack_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// relayed is what one call of Relay returned.
type relayed struct {
	up, down int64
	err      error
}

// relayTo starts a guest whose connections are relayed to a listener on
// loopback that serve handles.
func relayTo(t *testing.T, opts netstack.RelayOptions, serve func(*net.TCPConn)) (*netstacktest.Guest, <-chan relayed) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	results := make(chan relayed, 16)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		TCP: func(ctx context.Context, f *netstack.TCPFlow) {
			var d net.Dialer
			up, err := d.DialContext(ctx, "tcp", l.Addr().String())
			if err != nil {
				f.Reject()
				return
			}
			c, err := f.Accept()
			if err != nil {
				_ = up.Close()
				return
			}
			var r relayed
			r.up, r.down, r.err = netstack.Relay(ctx, c, up, opts)
			if err := up.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the relay is over and upstream's socket is open: %v", err)
			}
			results <- r
		},
	}})
	return g, results
}

func TestRelayPassesHalfCloseOn(t *testing.T) {
	t.Parallel()
	var up, down atomic.Int64
	g, results := relayTo(t, netstack.RelayOptions{Up: &up, Down: &down}, func(c *net.TCPConn) {
		b, _ := io.ReadAll(c) // until the guest's FIN
		_, _ = c.Write(append(b, b...))
		_ = c.Close()
	})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	const size = 3 << 20
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, c); err != nil || n != 2*size {
		t.Fatalf("got %d bytes, %v; want %d", n, err, 2*size)
	}
	if r := <-results; r.err != nil || r.up != size || r.down != 2*size || up.Load() != size || down.Load() != 2*size {
		t.Fatalf("relay returned %+v, counted %d and %d", r, up.Load(), down.Load())
	}
}

func TestRelayPassesUpstreamResetOn(t *testing.T) {
	t.Parallel()
	g, results := relayTo(t, netstack.RelayOptions{}, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
		_ = c.Close()
	})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("x"))
	if _, err := io.ReadAll(c); err == nil {
		t.Error("guest read EOF, want a reset")
	}
	if r := <-results; !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("relay returned %v, want ECONNRESET", r.err)
	}
}

func TestRelayPassesGuestResetOn(t *testing.T) {
	t.Parallel()
	got := make(chan error, 1)
	g, results := relayTo(t, netstack.RelayOptions{}, func(c *net.TCPConn) {
		_, _ = c.Write([]byte("x"))
		_, err := io.ReadAll(c)
		got <- err
		_ = c.Close()
	})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for _, ep := range g.Stack.RegisteredEndpoints() {
		ep.Abort()
	}
	if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("upstream read %v, want ECONNRESET", err)
	}
	if r := <-results; !errors.Is(r.err, syscall.ECONNRESET) {
		t.Errorf("relay returned %v, want ECONNRESET", r.err)
	}
}

func TestI11_RelayStopsAtTheBudget(t *testing.T) {
	t.Parallel()
	spent := errors.New("budget spent")
	received := make(chan int64, 1)
	var left atomic.Int64
	left.Store(100)
	admit := func(n int) error {
		if left.Add(-int64(n)) < 0 {
			return spent
		}
		return nil
	}
	g, results := relayTo(t, netstack.RelayOptions{Admit: admit}, func(c *net.TCPConn) {
		n, _ := io.Copy(io.Discard, c)
		received <- n
		_ = c.Close()
	})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write(make([]byte, 1<<20))
	if r := <-results; !errors.Is(r.err, spent) {
		t.Errorf("relay returned %v, want the budget's error", r.err)
	}
	if n := <-received; n > 100 {
		t.Errorf("upstream received %d bytes, want at most 100", n)
	}
}

func TestRelayEndsWithItsContext(t *testing.T) {
	t.Parallel()
	up, peer := net.Pipe()
	defer func() { _ = peer.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	results := make(chan relayed, 1)
	_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{
		TCP: func(_ context.Context, f *netstack.TCPFlow) {
			c, err := f.Accept()
			if err != nil {
				return
			}
			var r relayed
			r.up, r.down, r.err = netstack.Relay(ctx, c, up, netstack.RelayOptions{})
			results <- r
		},
	}})
	c, err := g.DialTCP(testContext(t), server4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	cancel()
	if r := <-results; !errors.Is(r.err, context.Canceled) {
		t.Errorf("relay returned %v, want context.Canceled", r.err)
	}
	if _, err := io.ReadAll(c); err == nil {
		t.Error("guest read EOF, want a reset")
	}
}

// overContext has ended, but its Done channel is not closed yet.
type overContext struct{ context.Context }

// Err implements context.Context.
func (overContext) Err() error { return context.Canceled }

// TestEndedRelaysSendNothing: a reset comes a moment after the end of the relay's context, and what the guest sent
// meanwhile left.
func TestEndedRelaysSendNothing(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{true, false} {
		result := make(chan error, 1)
		near, far := net.Pipe()
		_, g := netstacktest.Start(t, netstack.Config{Handler: &netstacktest.Handler{TCP: func(_ context.Context, f *netstack.TCPFlow) {
			c, err := f.Accept()
			if err != nil {
				result <- err
				return
			}
			ctx := context.Background()
			if over {
				ctx = overContext{ctx}
			}
			_, _, err = netstack.Relay(ctx, c, near, netstack.RelayOptions{})
			result <- err
		}}})
		c, err := g.DialTCP(testContext(t), server4)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("x"))
		if n, err := far.Read(make([]byte, 1)); (n == 0) != over {
			t.Errorf("over %v: %d bytes left, %v", over, n, err)
		}
		_, _ = c.Close(), far.Close()
		if err := <-result; errors.Is(err, context.Canceled) != over {
			t.Errorf("over %v: the relay ended with %v", over, err)
		}
	}
}
