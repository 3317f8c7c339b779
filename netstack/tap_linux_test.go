package netstack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// startTap joins a stack and Linux's own TCP in a namespace. Needs root.
func startTap(t *testing.T, cfg netstack.Config) (*netstack.Stack, *netstacktest.TapGuest) {
	t.Helper()
	cfg.GuestMAC = netstacktest.MAC
	s, err := netstack.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	host, guest := netstacktest.Pair(t)
	served := make(chan error, 1)
	go func() { served <- s.Serve(context.Background(), netstack.NewStreamLink(host)) }()
	g := netstacktest.NewTapGuest(t, guest, s.Config())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, netstack.ErrClosed) {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, g
}

func dialIn(g *netstacktest.TapGuest, network, addr string) (c net.Conn, err error) {
	err = g.Do(func() (err error) {
		c, err = net.Dial(network, addr)
		return err
	})
	return c, err
}

func TestKernelGuestExchangesBytes(t *testing.T) {
	for _, mtu := range []int{1500, netstack.LargeMTU} {
		_, g := startTap(t, netstack.Config{MTU: mtu, LargeFrames: true, Handler: &netstacktest.Handler{TCP: echo, UDP: echoUDP}})
		for _, dst := range []string{server4.String(), server6.String()} {
			if err := exchange(g, dst); err != nil {
				t.Errorf("mtu %d: %s: %v", mtu, dst, err)
			}
		}
	}
}

// exchange sends 8 MiB to an echo and reads them back to the end.
func exchange(g *netstacktest.TapGuest, dst string) error {
	c, err := dialIn(g, "tcp", dst)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(15 * time.Second))
	const size = 8 << 20
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	if err == nil && n != size {
		err = fmt.Errorf("got %d bytes, want %d", n, size)
	}
	return err
}

func TestKernelGuestDials500TimesInARow(t *testing.T) {
	var asked atomic.Int32
	_, g := startTap(t, netstack.Config{Handler: &netstacktest.Handler{TCP: func(ctx context.Context, f *netstack.TCPFlow) {
		asked.Add(1)
		echo(ctx, f)
	}}})
	err := g.Do(func() error {
		for range 500 {
			c, err := net.Dial("tcp", server4.String())
			if err != nil {
				return err
			}
			_ = c.(*net.TCPConn).CloseWrite()
			if _, err := io.ReadAll(c); err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
	if err != nil || asked.Load() != 500 {
		t.Fatalf("%d connections, %v", asked.Load(), err)
	}
}

func TestKernelGuestFeelsDenialsAtOnce(t *testing.T) {
	_, g := startTap(t, netstack.Config{Handler: &netstacktest.Handler{}})
	if _, err := dialIn(g, "tcp", server4.String()); err == nil {
		t.Error("TCP to a rejected address connected")
	}
	for _, dst := range []string{server4.String(), server6.String()} {
		c, err := dialIn(g, "udp", dst)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("UDP to %s was answered", dst)
		}
		_ = c.Close()
	}
}
