package gateway_test

import (
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI1_RefusedReloadsSaySo: the error and the log's line say that the old policy stays in force, and never that something can't start.
func TestI1_RefusedReloadsSaySo(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, "")
	next := gatewaytest.Policy(t, "[[tls.extra_ca]]\nfile = \"/missing/ca.pem\"\nhosts = [\"*\"]\n")
	err := w.Gateway.Reload(next)
	const want = "the reload is refused and the old policy stays in force: "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "start") {
		t.Errorf("the error is %v, want %q", err, want)
	}
	if line := w.Audit.Wait(t, audit.PolicyReload, 1)[0]; line.Action != "deny" || !strings.HasPrefix(line.Message, want) {
		t.Errorf("the log says %+v", line)
	}
}
