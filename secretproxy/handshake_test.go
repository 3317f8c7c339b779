package secretproxy

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/msb-project/msb/audit"
)

// TestI8_HandshakeLinesHoldNoPlaceholder: the guest chooses the protocols and the name of a TLS hello, which
// crypto/tls repeats.
func TestI8_HandshakeLinesHoldNoPlaceholder(t *testing.T) {
	t.Parallel()
	w := wantsSecret(t, echo)
	p := w.placeholder()
	hellos := []*tls.Config{
		{ServerName: apiHost, NextProtos: []string{p}},
		{ServerName: apiHost, NextProtos: []string{strings.Repeat("a", 255), p, "\x1b]0;x"}},
		{ServerName: p + " \x01"},
		{ServerName: strings.Repeat(p, 6)},
		{ServerName: "." + p},
		{ServerName: apiHost, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
		{ServerName: apiHost, NextProtos: []string{"h2"}}, // doesn't trust the authority
	}
	for i, hello := range hellos {
		c := tls.Client(w.pipe(flow(apiHost, apiAddr), false), hello)
		if err := c.Handshake(); err == nil {
			t.Errorf("hello %d: the handshake ended", i)
		}
		_ = c.Close()
	}
	eventually(t, "a line for each hello", func() bool { return len(w.events.of(audit.HTTPRequest)) == len(hellos) })
	causes := ""
	for _, e := range w.events.of(audit.HTTPRequest) {
		line := strings.ToLower(fmt.Sprintf("%+v", e))
		if strings.Contains(line, strings.ToLower(p)) || strings.Contains(line, "aaaaaaaa") {
			t.Errorf("the log has %s", line)
		}
		causes += e.Message + "\n"
	}
	for _, cause := range []string{"not a name that is pinned", "remote error: tls: ", "no version, cipher or protocol in common"} {
		if !strings.Contains(causes, cause) {
			t.Errorf("no line says %q: %s", cause, causes)
		}
	}
	// What crypto/tls says by itself.
	server, client := net.Pipe()
	go func() {
		_ = tls.Client(client, hellos[0]).Handshake()
		_ = client.Close()
	}()
	if err := tls.Server(server, &tls.Config{Certificates: w.api.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}).Handshake(); err == nil || !strings.Contains(err.Error(), p) {
		t.Errorf("crypto/tls says %v", err)
	}
	_ = server.Close()
}
