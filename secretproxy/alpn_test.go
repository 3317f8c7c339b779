package secretproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"testing"
)

// TestALPNPicksWhatBothSpeak looks at what a guest's handshake agrees on, whole and resumed: HTTP/2 wherever
// the guest offers it, in whatever order; and nothing else than is then spoken.
func TestALPNPicksWhatBothSpeak(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, c := range []struct {
			offered []string
			want    string
			refused bool
		}{
			{offered: []string{"h2", "http/1.1"}, want: "h2"},
			{offered: []string{"http/1.1", "h2"}, want: "h2"},
			{offered: []string{"h2"}, want: "h2"},
			{offered: []string{"http/1.1"}, want: "http/1.1"},
			{offered: []string{"h3", "http/1.1"}, want: "http/1.1"},
			{offered: nil, want: ""},
			{offered: []string{"h3"}, refused: true},
		} {
			what := fmt.Sprintf("%s, offered %q", tls.VersionName(version), c.offered)
			sessions := tls.NewLRUClientSessionCache(1)
			for i := range 2 {
				conn := tls.Client(w.pipe(flow(apiHost, apiAddr), false), &tls.Config{
					RootCAs: w.root, ServerName: apiHost, NextProtos: c.offered, ClientSessionCache: sessions, MinVersion: version, MaxVersion: version,
				})
				err := conn.Handshake()
				if c.refused {
					if err == nil {
						t.Errorf("%s: agreed on %q", what, conn.ConnectionState().NegotiatedProtocol)
					}
					break
				}
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				state := conn.ConnectionState()
				if state.NegotiatedProtocol != c.want || state.Version != version || state.DidResume != (i > 0) {
					t.Errorf("%s: agreed on %q, resumed %v; want %q, resumed %v", what, state.NegotiatedProtocol, state.DidResume, c.want, i > 0)
				}
				askOver(t, conn, c.want, what)
			}
		}
	}
}

// askOver sends a request in the protocol that was agreed on. It also reads, with which a session of TLS 1.3
// comes.
func askOver(t *testing.T, conn *tls.Conn, protocol, what string) {
	t.Helper()
	major := 1
	if protocol == "h2" {
		major = 2
	}
	var protocols http.Protocols
	protocols.SetHTTP1(major == 1)
	protocols.SetUnencryptedHTTP2(major == 2) // the connection is encrypted already
	tr := &http.Transport{Protocols: &protocols, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	defer tr.CloseIdleConnections()
	resp, _ := do(t, &http.Client{Transport: tr}, request(t, "GET", "http://"+apiHost+"/", nil))
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != major {
		t.Errorf("%s: status %d over %s", what, resp.StatusCode, resp.Proto)
	}
}
