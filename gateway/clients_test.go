package gateway

import (
	"context"
	"errors"
	"testing"

	"github.com/msb-project/msb/egress"
)

// TestClientsOfOldPoliciesAreEnded: one that connected while the policy changed is judged once more when it is followed, and
// each time that clients are revoked.
func TestClientsOfOldPoliciesAreEnded(t *testing.T) {
	t.Parallel()
	var i inbound
	verdict := egress.Verdict{Action: egress.Deny}
	ctx, done := i.follow(t.Context(), func() egress.Verdict { return verdict })
	if !errors.Is(context.Cause(ctx), errIngress) {
		t.Errorf("a client that may no longer connect goes on: %v", context.Cause(ctx))
	}
	done()
	verdict.Action = egress.Allow
	ctx, done = i.follow(t.Context(), func() egress.Verdict { return verdict })
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
}
