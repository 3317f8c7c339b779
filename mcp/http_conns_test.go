package mcp

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
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
	srv := &http.Server{Handler: serve(t, nil).overHTTP("test", HTTPOptions{Token: testToken}), ConnContext: withVisitor}
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
