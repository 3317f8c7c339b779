package gateway

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// TestI11_InboundUDPFlowsAreBounded fills the table. Silent flows make room, used ones don't.
func TestI11_InboundUDPFlowsAreBounded(t *testing.T) {
	t.Parallel()
	g := &Gateway{}
	now := time.Now()
	flow := func(last time.Time) *udpInbound {
		guest, far := net.Pipe()
		t.Cleanup(func() { _, _ = guest.Close(), far.Close() })
		f := &udpInbound{guest: guest}
		f.last.Store(last.UnixNano())
		return f
	}
	var flows []*udpInbound
	for range maxInboundUDP {
		if !g.takeUDP(now) {
			t.Fatalf("no room for flow %d", len(flows))
		}
		f := flow(now)
		g.joinUDP(f)
		flows = append(flows, f)
	}
	if g.takeUDP(now) {
		t.Error("one more than the bound")
	}
	flows[7].last.Store(now.Add(-inboundEvict).UnixNano())
	if !g.takeUDP(now) {
		t.Error("a silent flow makes no room")
	}
	if _, err := flows[7].guest.Write(nil); err == nil {
		t.Error("the flow that made room goes on")
	}
	g.joinUDP(flow(now))
	g.leaveUDP(flows[7]) // its place is another's
	if g.takeUDP(now) {
		t.Error("one place was given twice")
	}
	g.leaveUDP(flows[8])
	if !g.takeUDP(now) {
		t.Error("a flow that ended makes no room")
	}
}

// TestIdleUDPPortFlowsEnd: nothing passes, and a client that sends keeps its flow.
func TestIdleUDPPortFlowsEnd(t *testing.T) {
	t.Parallel()
	g := &Gateway{classifier: egress.NewClassifier()}
	g.policy.Store(policies.Default())
	guest, far := net.Pipe()
	defer far.Close()
	f := &udpInbound{guest: guest, begin: time.Now()}
	f.ev.Client = netip.MustParseAddrPort("127.0.0.1:1")
	f.last.Store(time.Now().UnixNano())
	p := &udpPort{g: g, idle: time.Millisecond}
	p.answers(t.Context(), f) // returns
	if f.ev.Message != "" || f.ev.Duration < p.idle {
		t.Errorf("the audit log says %+v", f.ev)
	}
}
