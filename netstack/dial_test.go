package netstack

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestI11_InboundConnectionsAreBounded takes every slot, then gives one back.
func TestI11_InboundConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := &Stack{ctx: t.Context()}
	flows := &tcpFlows{stack: s, live: map[*TCPFlow]struct{}{}, inbound: map[*TCPFlow]struct{}{}, lingering: map[*TCPFlow]lingerer{}}
	guest := netip.MustParseAddrPort("192.168.127.2:80")
	var last *TCPFlow
	for i := range MaxInbound {
		f, err := flows.reserveInbound(guest)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		last = f
	}
	if _, err := flows.reserveInbound(guest); !errors.Is(err, errInbound) {
		t.Errorf("one more: %v", err)
	}
	flows.release(last)
	if _, err := flows.reserveInbound(guest); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	flows.stack = &Stack{ctx: ctx}
	if _, err := flows.reserveInbound(guest); !errors.Is(err, ErrClosed) {
		t.Errorf("after the stack's end: %v", err)
	}
}

// TestI11_InboundBuffersAreBounded: what a guest that reads nothing makes the supervisor hold of very many connections. The
// twin is the first ones, whose buffers are large.
func TestI11_InboundBuffersAreBounded(t *testing.T) {
	t.Parallel()
	s, err := New(Config{GuestMAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Handler: struct{ Handler }{}})
	if err != nil {
		t.Fatal(err)
	}
	guest := netip.AddrPortFrom(s.cfg.Guest4, 80)
	for i := range largeInbound + 1 {
		f, err := s.tcp.reserveInbound(guest)
		if err != nil {
			t.Fatal(err)
		}
		c, terr := s.newInbound(f)
		if terr != nil {
			t.Fatal(terr)
		}
		options := c.ep.SocketOptions()
		small := options.GetSendBufferSize() <= smallBuffer && options.GetReceiveBufferSize() <= smallBuffer
		if want := i == largeInbound; small != want {
			t.Errorf("connection %d has buffers of %d and %d bytes", i, options.GetSendBufferSize(), options.GetReceiveBufferSize())
		}
		defer s.wg.Done()
		defer c.Reset()
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestBoundsOfPortsAreTheDocumentedOnes compares them with docs/ports.md.
func TestBoundsOfPortsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/ports.md")
	if err != nil {
		t.Fatal(err)
	}
	for promise, kept := range map[string]bool{
		"with 12,288 connections to all of them at a time":          MaxInbound == 12288,
		"Beyond the first 512, each has buffers of 32 KiB each way": largeInbound == 512 && smallBuffer == 32<<10,
	} {
		if !kept || !strings.Contains(string(text), promise) {
			t.Errorf("docs/ports.md and the stack don't agree: %s", promise)
		}
	}
}
