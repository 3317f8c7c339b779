package secretproxy

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/msb-project/msb/egress"
)

// TestResumedSessionsKeepTheirName: a server isn't asked for a certificate when TLS 1.3
// resumes a session, so the name must be known without it.
func TestResumedSessionsKeepTheirName(t *testing.T) {
	t.Parallel()
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		w := wantsSecret(t, echo)
		sessions := tls.NewLRUClientSessionCache(1)
		dial := func(f egress.Flow) (*tls.Conn, error) {
			c := tls.Client(w.pipe(f, false), &tls.Config{
				RootCAs: w.root, ServerName: apiHost, NextProtos: []string{"http/1.1"}, ClientSessionCache: sessions, MaxVersion: version, MinVersion: version,
			})
			_ = c.SetDeadline(time.Now().Add(60 * time.Second))
			return c, c.Handshake()
		}
		for i := range 3 {
			c, err := dial(flow(apiHost, apiAddr))
			if err != nil {
				t.Fatal(err)
			}
			if got := c.ConnectionState().DidResume; got != (i > 0) {
				t.Errorf("%s, connection %d: resumed %v", tls.VersionName(version), i, got)
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\nAuthorization: "+w.placeholder()+"\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s, connection %d: status %d", tls.VersionName(version), i, resp.StatusCode)
			}
			_ = c.Close()
		}
		// The name of the session, at an address that another name is pinned to.
		c, err := dial(flow(evilHost, evilAddr))
		if err == nil { // TLS 1.2 and 1.3 tell a client at different times
			_, err = c.Read(make([]byte, 1))
		}
		if err == nil {
			t.Errorf("%s: a session was resumed for a name that is not pinned", tls.VersionName(version))
		}
		if got := w.evil.bytes(); got != "" {
			t.Errorf("%s: the other server got %q", tls.VersionName(version), got)
		}
	}
}
