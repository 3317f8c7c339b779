package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/netstack"
	"github.com/msb-project/msb/policies"
)

// TestI11_InboundUDPFlowsAreBounded fills the table. Silent flows make room, used ones don't.
func TestI11_InboundUDPFlowsAreBounded(t *testing.T) {
	t.Parallel()
	g := &Gateway{}
	g.inbound.g = g
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
		if !g.inbound.udp.take(now) {
			t.Fatalf("no room for flow %d", len(flows))
		}
		f := flow(now)
		g.inbound.udp.join(f)
		flows = append(flows, f)
	}
	if g.inbound.udp.take(now) {
		t.Error("one flow more than the bound was taken")
	}
	flows[7].last.Store(now.Add(-inboundEvict).UnixNano())
	if !g.inbound.udp.take(now) {
		t.Error("a silent flow makes no room")
	}
	if _, err := flows[7].guest.Write(nil); err == nil {
		t.Error("the flow that made room goes on")
	}
	g.inbound.udp.join(flow(now))
	g.inbound.udp.leave(flows[7]) // its place is another's
	if g.inbound.udp.take(now) {
		t.Error("one slot was given twice")
	}
	g.inbound.udp.leave(flows[8])
	if !g.inbound.udp.take(now) {
		t.Error("a flow that ended makes no room")
	}
}

// TestIdleUDPPortFlowsEnd: nothing passes. Its twin is TestUsedUDPPortFlowsStay.
func TestIdleUDPPortFlowsEnd(t *testing.T) {
	t.Parallel()
	g := &Gateway{classifier: egress.NewClassifier()}
	g.inbound.g = g
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
	_ = far.SetReadDeadline(time.Now().Add(time.Minute)) // one that stays open fails the test
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the socket of a flow that ended: %v", err)
	}
	if n := g.inbound.clients.count(); n != 0 {
		t.Errorf("%d clients are left", n)
	}
}

// TestI15_ClaimedAddressesAreNotBelieved: what proves that a client is this machine itself.
func TestI15_ClaimedAddressesAreNotBelieved(t *testing.T) {
	t.Parallel()
	g := &Gateway{classifier: egress.NewClassifier()}
	g.inbound.g = g
	g.classifier.SetHost(netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::7"))
	g.policy.Store(policies.Default())
	for _, c := range []struct {
		proto  egress.Proto
		client string
		ours   bool
	}{
		{egress.TCP, "10.1.2.3", true}, {egress.TCP, "fd00::7", true}, {egress.TCP, "127.0.0.1", true}, {egress.TCP, "::1", true},
		{egress.UDP, "10.1.2.3", true}, {egress.UDP, "fd00::7", false}, {egress.UDP, "127.0.0.1", true}, {egress.UDP, "::1", true},
		{egress.TCP, "10.1.2.4", false}, {egress.TCP, "64:ff9b::a01:203", false}, {egress.TCP, "2002:a01:203::1", false}, {egress.TCP, "::ffff:10.1.2.3", true},
	} {
		if v := g.inbound.admits(c.proto, netip.MustParseAddr(c.client)); (v.Action == egress.Allow) != c.ours {
			t.Errorf("%s from %s: %s", c.proto, c.client, v.Action)
		}
	}
	if v := g.inbound.admits(egress.TCP, netip.Addr{}); v.Action == egress.Allow {
		t.Error("a client without an address may connect")
	}
}

// refusing is a socket whose every other Write tells that the datagram before it was refused.
type refusing struct {
	net.Conn
	calls, woken int
}

// SetReadDeadline implements net.Conn.
func (r *refusing) SetReadDeadline(time.Time) error { r.woken++; return nil }

// Write implements net.Conn.
func (r *refusing) Write(b []byte) (int, error) {
	if r.calls++; r.calls%2 == 0 {
		return 0, syscall.ECONNREFUSED
	}
	return len(b), nil
}

// TestRefusedDatagramsLoseNoOthers: what the guest says of one datagram is not taken for the next one's.
func TestRefusedDatagramsLoseNoOthers(t *testing.T) {
	t.Parallel()
	guest := &refusing{}
	f := &udpInbound{guest: guest}
	for range 3 {
		f.send([]byte("12345"))
	}
	if n := f.down.Load(); n != 15 || !f.refused.Load() {
		t.Errorf("%d bytes went to the guest, want 15; refused %v", n, f.refused.Load())
	}
	if guest.woken == 0 {
		t.Error("nobody looks at what was refused")
	}
}

// TestI11_UnansweredDatagramsAreBounded sends datagrams to a server that answers none. The twin: the first one is kept, for
// a server that turns out to listen on loopback only.
func TestI11_UnansweredDatagramsAreBounded(t *testing.T) {
	t.Parallel()
	const takes = 24 // a slice's header, bytes
	for _, size := range []int{0, 1, 1000} {
		f := &udpInbound{guest: taking{}}
		for range 10000 {
			f.send(make([]byte, size))
		}
		if n := len(f.unanswered); n == 0 || n*(size+takes) > maxUnanswered {
			t.Errorf("of datagrams with %d bytes %d are kept, want some, and at most %d bytes", size, n, maxUnanswered)
		}
		if n := len(f.settle()); n == 0 || len(f.settle()) != 0 {
			t.Errorf("%d datagrams are sent again, want those that were kept, once", n)
		}
	}
}

// taking is a socket that takes every datagram.
type taking struct{ net.Conn }

// Write implements net.Conn.
func (taking) Write(b []byte) (int, error) { return len(b), nil }

// TestBoundsOfPortsAreTheDocumentedOnes compares them with docs/ports.md.
func TestBoundsOfPortsAreTheDocumentedOnes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/ports.md")
	if err != nil {
		t.Fatal(err)
	}
	g := newTestGateway(t, "", nil, nil)
	for promise, kept := range map[string]bool{
		"Of UDP there are 512 clients at a time": maxInboundUDP == 512, "was silent for 10 seconds gives way to a new one": inboundEvict == 10*time.Second,
		"after two minutes without a datagram its flow ends":       inboundIdle == 2*time.Minute && newUDPPort(nil, nil, 1).idle == 2*time.Minute,
		"12,288 connections to all of them at a time; others wait": netstack.MaxInbound == 12288 && cap(g.inbound.slots) == 12288,
	} {
		if !kept || !strings.Contains(string(text), promise) {
			t.Errorf("docs/ports.md and the gateway don't agree: %s", promise)
		}
	}
}
