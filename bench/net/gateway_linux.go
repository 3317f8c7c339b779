package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"syscall"

	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/netstack/frameguard"
	"github.com/msb-project/msb/netstack/netstacktest"
)

// loopback dials the server whatever the guest asked for.
type loopback struct{ dialer net.Dialer }

func (l *loopback) HandleTCP(ctx context.Context, f *netstack.TCPFlow) {
	up, err := l.dialer.DialContext(ctx, "tcp", netAddr(f.Dst().Port()))
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench/net: %v\n", err) // the client only sees that it was refused
		f.Reject()
		return
	}
	c, err := f.Accept()
	if err != nil {
		_ = up.Close()
		return
	}
	_, _, _ = netstack.Relay(ctx, c, up, netstack.RelayOptions{})
}

func (l *loopback) HandleUDP(ctx context.Context, f *netstack.UDPFlow) {
	up, err := l.dialer.DialContext(ctx, "udp", netAddr(f.Dst().Port()))
	if err != nil {
		f.Reject()
		return
	}
	defer func() { _ = up.Close() }()
	c, err := f.Accept()
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = up.Close() })
	defer stop()
	go copyDatagrams(c, up)
	copyDatagrams(up, c)
}

func (l *loopback) HandlePing(context.Context, *netstack.PingFlow) {}
func (l *loopback) Limited(netstack.LimitEvent)                    {}
func (l *loopback) Dropped(frameguard.Reason, int64)               {}

func copyDatagrams(dst io.Writer, src io.Reader) {
	buf := make([]byte, netstack.MaxFrame)
	for {
		n, err := src.Read(buf)
		if err != nil {
			return
		}
		if _, err := dst.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (o options) stackConfig(h netstack.Handler) netstack.Config {
	return netstack.Config{GuestMAC: netstacktest.MAC, MTU: o.mtu, LargeFrames: o.large, PartialChecksums: o.trust, Handler: h,
		Limits: netstack.Limits{TCPConnections: 2 * idleFlows}}
}

// memory is what a gateway reports when asked.
type memory struct{ Mallocs, Bytes, InUse uint64 }

// The bytes on a gateway's stdin that ask for its memory: as it is, or after
// what nobody uses was freed.
const (
	askMallocs = 'm'
	askInUse   = 'i'
)

// gateway serves the link on descriptor 3 and reports its allocations for each
// byte on stdin.
func gateway(o options) error {
	s, err := netstack.New(o.stackConfig(&loopback{}))
	if err != nil {
		return err
	}
	link, err := openLink(o)
	if err != nil {
		return err
	}
	go report()
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	err = s.Serve(context.Background(), link)
	_ = s.Close()
	return err
}

func openLink(o options) (netstack.Link, error) {
	if o.tap {
		return newTapLink(3)
	}
	return netstack.NewStreamLinkFile(os.NewFile(3, "link"))
}

func report() {
	for b := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(b); err != nil {
			return
		}
		if b[0] == askInUse {
			runtime.GC()
			runtime.GC() // what pools hold goes with the second
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_ = json.NewEncoder(os.Stdout).Encode(memory{m.Mallocs, m.TotalAlloc, m.HeapInuse + m.StackInuse})
	}
}

// bridge carries frames between the TAP on descriptor 3 and the link on 4.
func bridge(options) error {
	if err := syscall.SetNonblock(3, true); err != nil { // else each read takes a thread
		return err
	}
	link := os.NewFile(4, "link")
	conn, err := net.FileConn(link)
	if err != nil {
		return err
	}
	netstacktest.BridgeTap(os.NewFile(3, "tap"), conn)
	return nil
}

// copyRelay is the ceiling for any user-space proxy over sockets: two kernel TCP
// connections and a buffer between. It listens one block of ports above the
// server's.
func copyRelay(o options) error {
	for i := range portUDP {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: o.base + relayOffset + i})
		if err != nil {
			return err
		}
		go accept(l, func(c *net.TCPConn) {
			up, err := net.Dial("tcp", netAddr(uint16(o.base+i)))
			if err != nil {
				return
			}
			defer func() { _ = up.Close() }()
			done := make(chan struct{})
			go func() { defer close(done); copyBytes(up, c); _ = up.(*net.TCPConn).CloseWrite() }()
			copyBytes(c, up)
			_ = c.CloseWrite()
			<-done
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// copyBytes keeps the kernel from splicing, which a proxy that looks can't use.
func copyBytes(dst io.Writer, src io.Reader) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 64<<10))
}
