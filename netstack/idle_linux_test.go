//go:build linux && !race

package netstack_test

// Not with the race detector, whose shadow memory is counted too.

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

func TestI11_IdleFlowsAreSmall(t *testing.T) {
	const flows, perFlow = 1000, 20 << 10
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var mu sync.Mutex
	var keep []net.Conn
	defer func() {
		for _, c := range keep {
			_ = c.Close()
		}
	}()
	hold := func(c net.Conn) { mu.Lock(); keep = append(keep, c); mu.Unlock() }
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hold(c)
		}
	}()
	s, g := startTap(t, netstack.Config{Limits: netstack.Limits{TCPConnections: flows}, Handler: &netstacktest.Handler{TCP: func(ctx context.Context, f *netstack.TCPFlow) {
		up, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return
		}
		c, err := f.Accept()
		if err != nil {
			_ = up.Close()
			return
		}
		_, _, _ = netstack.Relay(ctx, c, up, netstack.RelayOptions{})
	}}})
	before := inUse()
	if err := g.Do(func() error {
		for range flows {
			c, err := net.Dial("tcp", server4.String())
			if err != nil {
				return err
			}
			hold(c)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all relayed", func() bool { mu.Lock(); defer mu.Unlock(); return len(keep) == 2*flows })
	if each := (inUse() - before) / flows; each > perFlow {
		t.Errorf("an idle flow holds %d bytes, want at most %d", each, perFlow)
	} else {
		t.Logf("an idle flow holds %d bytes, its test sockets included", each)
	}
	if n := s.Stats().TCPConnections; n != flows {
		t.Errorf("%d connections, want %d", n, flows)
	}
}

// inUse is heap and stacks after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
