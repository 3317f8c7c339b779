package gateway_test

import (
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/gateway/gatewaytest"
)

// TestI16_PeekedFlowsFollowHosts: a connection waits for its client's first bytes when a reload gives its name a target
// in [hosts], or takes it away. It is judged as one that is opened then. In the twin the reload changes nothing of that.
func TestI16_PeekedFlowsFollowHosts(t *testing.T) {
	t.Parallel()
	const rule = "[[egress.allow]]\nhosts = [\"web.example.com\"]\nprotocol = \"tls\"\n"
	const mapped = rule + "[hosts]\n\"web.example.com\" = \"10.7.0.1:443\"\n"
	for what, tt := range map[string]struct {
		before, after string
		allowed       bool
	}{
		"the same (twin)":         {rule, rule + "# edited\n", true},
		"a target comes":          {rule, mapped, false},
		"a target goes":           {mapped, rule, false},
		"the target stays (twin)": {mapped, mapped + "# edited\n", true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := gatewaytest.Start(t, tt.before)
			w.Record("web.example.com. 60 IN A " + site)
			for _, server := range []string{site + ":443", "10.7.0.1:443"} {
				w.Serve(server, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
			}
			c, err := w.Dial(w.Lookup("web.example.com"), 443)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := w.Gateway.Reload(gatewaytest.Policy(t, tt.after)); err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(60 * time.Second))
			go func() {
				_ = tls.Client(c, &tls.Config{ServerName: "web.example.com", InsecureSkipVerify: true}).Handshake() // the audit says what came of it
			}()
			if e := w.Audit.Wait(t, audit.FlowOpen, 1)[0]; (e.Action == "allow") != tt.allowed {
				t.Errorf("%s %s to %s (%s)", e.Action, e.Reason, e.Dst, e.Target)
			}
		})
	}
}
