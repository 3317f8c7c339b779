package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/policies"
)

// TestClientsOfOldPoliciesAreEnded: one that connected while the policy changed is judged once more when it is followed, and
// each time that clients are revoked.
func TestClientsOfOldPoliciesAreEnded(t *testing.T) {
	t.Parallel()
	var i inbound
	verdict := egress.Verdict{Action: egress.Deny}
	ctx, done := i.follow(t.Context(), func() egress.Verdict { return verdict }, func() bool { return true })
	if !errors.Is(context.Cause(ctx), errIngress) {
		t.Errorf("a client that may no longer connect goes on: %v", context.Cause(ctx))
	}
	done()
	verdict.Action = egress.Allow
	ctx, done = i.follow(t.Context(), func() egress.Verdict { return verdict }, func() bool { return true })
	if n := i.revokeClients(); ctx.Err() != nil || n != 0 || i.clients.count() != 1 {
		t.Errorf("a client that may connect was ended: %v, %d of %d", ctx.Err(), n, i.clients.count())
	}
	verdict.Action = egress.Deny
	if n := i.revokeClients(); !errors.Is(context.Cause(ctx), errIngress) || n != 1 {
		t.Errorf("a revoked client goes on: %v, %d", context.Cause(ctx), n)
	}
	if done(); i.clients.count() != 0 {
		t.Errorf("%d clients are followed", i.clients.count())
	}
	verdict.Action = egress.Allow
	ctx, done = i.follow(t.Context(), func() egress.Verdict { return verdict }, func() bool { return true })
	if done(); ctx.Err() == nil || errors.Is(context.Cause(ctx), errIngress) {
		t.Errorf("what a client that left began: %v", context.Cause(ctx))
	}
}

// TestShortClientsAreUses: one that came and went between two looks is a use, once.
func TestShortClientsAreUses(t *testing.T) {
	t.Parallel()
	g := &Gateway{}
	if g.Used() {
		t.Error("nobody is a use")
	}
	_, done := g.inbound.follow(t.Context(), func() egress.Verdict { return egress.Verdict{Action: egress.Allow} }, func() bool { return true })
	done()
	if !g.Used() || g.Used() {
		t.Error("a short client is no use, or more than one")
	}
}

// TestI11_GuestsKeepNoUDPClients: only what the client sends is a use, whatever the guest sends it. The twin is a client
// that sends.
func TestI11_GuestsKeepNoUDPClients(t *testing.T) {
	t.Parallel()
	for _, sends := range []bool{false, true} {
		g := &Gateway{classifier: egress.NewClassifier()}
		g.inbound.g = g
		g.policy.Store(policies.Default())
		guest, far := net.Pipe()
		f := &udpInbound{guest: guest, begin: time.Now()}
		f.ev.Client = netip.MustParseAddrPort("127.0.0.1:1")
		f.heard(time.Now().Add(-inboundIdle))
		f.last.Store(time.Now().UnixNano()) // by the guest
		if sends {
			f.heard(time.Now())
		}
		ended := make(chan struct{})
		go func() { defer close(ended); (&udpPort{g: g, idle: inboundIdle}).answers(t.Context(), f) }()
		for g.inbound.clients.count() == 0 {
			time.Sleep(time.Millisecond)
		}
		if g.Used(); g.Used() != sends {
			t.Errorf("the client sends %v, and that is a use: %v", sends, !sends)
		}
		_ = far.Close()
		<-ended
	}
}
