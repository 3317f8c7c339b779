package gateway_test

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// A client that stops in the middle of what began like TLS or HTTP is told so in that protocol.
func TestStalledClientsGetProtocolRefusals(t *testing.T) {
	t.Parallel()
	w := gatewaytest.Start(t, apiTLS)
	w.Record("api.example.com. 60 IN A " + site)
	w.Lookup("api.example.com")
	for first, want := range map[string]string{
		"\x16\x03\x01\x02\x00\x01\x00": "\x15\x03\x03\x00\x02\x02\x31", // the alert access_denied
		"GET / HTTP/1.1\r\nHost: api":  "HTTP/1.1 403 ",
	} {
		c, err := w.Dial(siteAddr, 443)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(60 * time.Second))
		_, _ = io.WriteString(c, first)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
		var got bytes.Buffer
		if _, err := io.Copy(&got, c); err != nil || !strings.HasPrefix(got.String(), want) {
			t.Errorf("after %q: %q, %v; want %q", first, got.String(), err, want)
		}
		_ = c.Close()
	}
	if d := w.Dialled(); len(d) != 0 {
		t.Errorf("dialled %v", d)
	}
}
