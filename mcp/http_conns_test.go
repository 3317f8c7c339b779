package mcp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// guarded serves a playground's server behind a gate, whose deadlines come when the test says so.
func guarded(t *testing.T, most int) (address string, late chan func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	late = make(chan func(), 100)
	g := newGate(l)
	g.most = most
	g.after = func(_ time.Duration, f func()) *time.Timer {
		late <- f
		return time.AfterFunc(time.Hour, f)
	}
	srv := serve(t, nil).httpServer("test", HTTPOptions{Token: testToken})
	go func() { _ = srv.Serve(g) }()
	t.Cleanup(func() { _ = srv.Close() })
	return l.Addr().String(), late
}

// visit connects. It has at most a minute for all that it reads.
func visit(t *testing.T, address string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// sends sends a request and returns the answer's status.
func sends(c net.Conn, token string) (int, error) {
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s",
		HTTPPath, token, len(initialize), initialize); err != nil {
		return 0, err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	return r.StatusCode, err
}

// closed reports whether the other side has ended a connection.
func closed(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil && !strings.Contains(err.Error(), "timeout")
}

// TestI11_StrangersTakeNoConnections: connections without a request of a client end when there are too many, the oldest
// first, and at their deadline. Those of clients are the twins.
func TestI11_StrangersTakeNoConnections(t *testing.T) {
	t.Parallel()
	address, late := guarded(t, 2)
	client := visit(t, address)
	if status, err := sends(client, testToken); status != http.StatusOK || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	clientsDeadline := <-late
	guesser := visit(t, address)
	if status, err := sends(guesser, testToken[1:]); status != http.StatusUnauthorized || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	<-late
	if status, err := sends(client, testToken); status != http.StatusOK || err != nil { // which takes no stranger's place
		t.Errorf("%d, %v", status, err)
	}
	silent := visit(t, address)
	silentsDeadline := <-late
	last := visit(t, address)
	if !closed(guesser) {
		t.Error("the oldest of too many strangers is connected still")
	}
	<-late
	clientsDeadline()
	if status, err := sends(client, testToken); status != http.StatusOK || err != nil {
		t.Errorf("the client behind its deadline: %d, %v", status, err)
	}
	silentsDeadline()
	if !closed(silent) {
		t.Error("one that sent nothing is connected behind its deadline")
	}
	if status, err := sends(last, testToken); status != http.StatusOK || err != nil {
		t.Errorf("one that became a client: %d, %v", status, err)
	}
}

// TestI11_HTTPConnectionsAreBounded in time and in the length of a head.
func TestI11_HTTPConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	srv := p.httpServer("test", HTTPOptions{})
	if srv.ReadHeaderTimeout != headWait || srv.IdleTimeout != keepConn || srv.Protocols.HTTP2() || srv.Protocols.UnencryptedHTTP2() || srv.ErrorLog == nil {
		t.Errorf("%+v", srv)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = srv.Serve(newGate(l)) }()
	t.Cleanup(func() { _ = srv.Close() })
	const slop = 4096 // that net/http adds
	for bytes, want := range map[int]int{1000: http.StatusOK, maxHeaders - 1000: http.StatusOK, maxHeaders + slop: http.StatusRequestHeaderFieldsTooLarge} {
		head := "POST " + HTTPPath + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nX: " + strings.Repeat("x", bytes)
		if got := raw(t, l.Addr().String(), fmt.Sprintf("%s\r\nContent-Length: %d\r\n\r\n%s", head, len(initialize), initialize)); len(got) != 1 || got[0] != want {
			t.Errorf("a head of %d bytes: %v, want %d", bytes, got, want)
		}
	}
}

// TestHTTPCallsAreAnsweredAtTheEnd: a server that ends ends its calls, and their clients learn of it. Then nothing that
// watches for clients is left.
func TestHTTPCallsAreAnsweredAtTheEnd(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "default"})
	stuck := make(chan struct{})
	p.runner = hungRunner{hungMachine{hung{t, "exec", stuck, new(sync.Once)}}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.serveHTTP(ctx, p.httpServer("test", HTTPOptions{}), l) }()
	go func() {
		<-stuck
		cancel()
	}()
	status, _, text := post(t, "http://"+l.Addr().String()+HTTPPath, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_exec","arguments":{"command":"x"},`+metaNow+`}}`,
		map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "sandbox_exec"})
	if status != http.StatusOK || !strings.Contains(text, `"id":2`) || !strings.Contains(text, `"isError":true`) {
		t.Errorf("%d %s", status, text)
	}
	if err := got(t, ended); err != nil {
		t.Error(err)
	}
	for _, w := range p.watchers {
		select {
		case <-w.end:
		default:
			t.Error("resources are watched still")
		}
	}
}

// TestI11_ClientsTakeNoStrangersPlaces: one that sent the token counts no more.
func TestI11_ClientsTakeNoStrangersPlaces(t *testing.T) {
	t.Parallel()
	address, late := guarded(t, 2)
	stranger := visit(t, address)
	<-late
	client := visit(t, address)
	<-late
	if status, err := sends(client, testToken); status != http.StatusOK || err != nil {
		t.Fatalf("%d, %v", status, err)
	}
	visit(t, address)
	<-late
	if status, err := sends(stranger, testToken); status != http.StatusOK || err != nil {
		t.Errorf("the first of two strangers: %d, %v", status, err)
	}
}
