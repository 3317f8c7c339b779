package netstack

import (
	"context"
	"errors"
	"net/netip"
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
