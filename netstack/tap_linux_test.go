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
	"github.com/msb-project/msb/netstack/frameguard"
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
	for name, cfg := range map[string]netstack.Config{
		"mtu 1500, tso to the guest":    {LargeFrames: true},
		"mtu 1500, offloads both ways":  {LargeFrames: true, PartialChecksums: true},
		"mtu 65520":                     {MTU: netstack.LargeMTU},
		"mtu 65520, offloads both ways": {MTU: netstack.LargeMTU, LargeFrames: true, PartialChecksums: true},
	} {
		t.Run(name, func(t *testing.T) {
			sizes := new(frameSizes)
			cfg.Handler, cfg.Tap = &netstacktest.Handler{TCP: echo, UDP: echoUDP}, sizes
			_, g := startTap(t, cfg)
			for _, dst := range []string{server4.String(), server6.String()} {
				if err := exchange(g, dst); err != nil {
					t.Errorf("%s: %v", dst, err)
				}
				if err := exchangeDatagrams(g, dst); err != nil {
					t.Errorf("%s: %v", dst, err)
				}
			}
			// Above this libkrun 1.17.4 ends.
			if most := sizes.most[netstack.ToGuest].Load(); most > 65550 {
				t.Errorf("a frame of %d bytes went to the guest", most)
			}
			// A guest with TSO sends segments, one with a large MTU packets, of tens of KiB.
			large := cfg.MTU == netstack.LargeMTU || cfg.PartialChecksums
			if most := sizes.most[netstack.FromGuest].Load(); large != (most > 1514) {
				t.Errorf("the guest's largest frame has %d bytes", most)
			}
		})
	}
}

// frameSizes keeps the largest frame of either direction.
type frameSizes struct{ most [2]atomic.Int64 }

func (s *frameSizes) Frame(d netstack.Direction, frame []byte, _ frameguard.Reason) {
	for size := int64(len(frame)); ; {
		if was := s.most[d].Load(); size <= was || s.most[d].CompareAndSwap(was, size) {
			return
		}
	}
}

// exchangeDatagrams echoes UDP of every size, the largest of which take more than one frame at any MTU.
func exchangeDatagrams(g *netstacktest.TapGuest, dst string) error {
	c, err := dialIn(g, "udp", dst)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	buf := make([]byte, 1<<16)
	for _, size := range []int{1, 1472, 1473, 9000, 65_492, 65_507} {
		if _, err := c.Write(make([]byte, size)); err != nil {
			return fmt.Errorf("send %d bytes: %w", size, err)
		}
		if n, err := c.Read(buf); err != nil || n != size {
			return fmt.Errorf("%d bytes came back as %d: %w", size, n, err)
		}
	}
	return nil
}

// exchange sends 8 MiB to an echo and reads them back to the end.
func exchange(g *netstacktest.TapGuest, dst string) error {
	c, err := dialIn(g, "tcp", dst)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
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

func TestKernelGuestsDial500Times(t *testing.T) {
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
