package secretproxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// closing notes when a connection was written to and closed.
type closing struct {
	net.Conn
	mu            sync.Mutex
	wrote, closed time.Time
}

// Write implements net.Conn.
func (c *closing) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.wrote = time.Now()
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *closing) Close() error {
	c.mu.Lock()
	if c.closed.IsZero() {
		c.closed = time.Now()
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// TestSendingGuestsReadTheRefusal: a connection with bytes of an upload that nobody read is reset when it is
// closed, and clients then tell of the reset. So it stays open for a moment behind an answer that came early.
func TestSendingGuestsReadTheRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
	guest, gateway := tcpPair(t)
	watched := &closing{Conn: gateway}
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.proxy.ServeTLS(context.Background(), watched, flow(apiHost, apiAddr))
	}()
	c := &http.Client{Transport: &http.Transport{
		DialContext:     func(context.Context, string, string) (net.Conn, error) { return guest, nil },
		TLSClientConfig: &tls.Config{RootCAs: w.root, ServerName: apiHost},
	}}
	resp, _ := do(t, c, request(t, "POST", "https://"+apiHost+"/", strings.NewReader(strings.Repeat("x", 16<<20)), "X-Other", w.placeholder()))
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
	<-served
	watched.mu.Lock()
	defer watched.mu.Unlock()
	if left := watched.closed.Sub(watched.wrote); left < 100*time.Millisecond {
		t.Errorf("the connection was closed %v after the answer", left)
	}
}
