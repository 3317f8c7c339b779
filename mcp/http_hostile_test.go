package mcp

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// raw sends bytes on a connection of its own, and returns the statuses of all answers until it ends.
func raw(t *testing.T, address, text string) (statuses []int) {
	t.Helper()
	c := visit(t, address)
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for {
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			return statuses
		}
		statuses = append(statuses, answer.StatusCode)
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return statuses
		}
	}
}

// TestI15_SmuggledRequestsAreRefused: what two readers of one stream may take apart differently is no request, and what is
// in a body is none. The last are the twins, each with one answer for each request.
func TestI15_SmuggledRequestsAreRefused(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), nil)
	address := strings.TrimPrefix(srv.URL, "http://")
	const line, token = "POST " + HTTPPath + " HTTP/1.1\r\nHost: localhost\r\n", "Authorization: Bearer " + testToken + "\r\n"
	const kinds = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(initialize))
	inner := line + token + kinds + "Connection: close\r\n" + length + "\r\n" + initialize
	innerLength := fmt.Sprintf("Content-Length: %d\r\n", len(inner))
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(initialize), initialize)
	for what, c := range map[string]struct {
		text string
		want []int
	}{
		"two lengths":          {line + token + kinds + length + "Content-Length: 3\r\n\r\n" + initialize, []int{400}},
		"a signed length":      {line + token + kinds + "Content-Length: +3\r\n\r\n{} ", []int{400}},
		"another coding":       {line + token + kinds + "Transfer-Encoding: xchunked\r\n\r\n" + chunked, []int{501}},
		"two codings":          {line + token + kinds + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked, []int{501}},
		"a space in a name":    {line + token + kinds + "Content-Length : 3\r\n\r\n{} ", []int{400}},
		"a bare line":          {line + token + kinds + "Content-Length: 3\r\nX\r\n\r\n{} ", []int{400}},
		"two hosts":            {line + token + kinds + "Host: evil.example\r\n" + length + "\r\n" + initialize, []int{400}},
		"two tokens":           {line + token + "Authorization: Bearer x\r\nConnection: close\r\n" + kinds + length + "\r\n" + initialize, []int{401}},
		"two origins":          {line + token + "Origin: http://localhost\r\nOrigin: http://localhost\r\nConnection: close\r\n" + kinds + length + "\r\n" + initialize, []int{403}},
		"a request in a body":  {line + kinds + "Connection: close\r\n" + innerLength + "\r\n" + inner, []int{401}},
		"a request in a chunk": {line + kinds + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inner), inner), []int{401}},
		"a length that hides":  {line + token + kinds + "Transfer-Encoding: chunked\r\nConnection: close\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + inner, []int{400}},
		"HTTP/2":               {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{403}},
		"a long head":          {line + "X: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", []int{431}},
		"two requests":         {line + token + kinds + length + "\r\n" + initialize + inner, []int{200, 200}},
		"chunks":               {line + token + kinds + "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, []int{200}},
	} {
		if got := raw(t, address, c.text); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
	n := 0
	for range h.sessions.alive() {
		n++
	}
	if n != 3 {
		t.Errorf("%d sessions are open, want those of the twins", n)
	}
}

// pipes is a listener of connections that hold nothing: who doesn't read holds the writer.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, errors.New("closed")
	}
}
func (p *pipes) Close() error   { return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestI11_SlowHTTPClientsAreDisconnected: one that doesn't read its answer, and one that doesn't send its body. The twins do.
func TestI11_SlowHTTPClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, body  string
		reads, ends bool
	}{{"reads nothing", initialize, false, true}, {"sends half", initialize[:40], true, true}, {"reads and sends", initialize, true, false}} {
		h := serve(t, nil).overHTTP("test", HTTPOptions{})
		h.body, h.write = time.Minute, time.Minute
		if c.ends {
			h.body, h.write = 10*time.Millisecond, 10*time.Millisecond
		}
		ended := make(chan struct{}, 1)
		l := &pipes{make(chan net.Conn, 1), make(chan struct{})}
		srv := &http.Server{Handler: h, ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateClosed {
				ended <- struct{}{}
			}
		}}
		go func() { _ = srv.Serve(l) }()
		near, far := net.Pipe()
		l.conns <- far
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", HTTPPath, len(initialize), c.body)
		if _, err := io.WriteString(near, head); err != nil {
			t.Fatal(err)
		}
		if c.reads {
			_ = near.SetReadDeadline(time.Now().Add(time.Minute))
			r, err := http.ReadResponse(bufio.NewReader(near), nil)
			if err == nil {
				_, err = io.Copy(io.Discard, r.Body)
			}
			if !c.ends && (err != nil || r.StatusCode != http.StatusOK) || c.ends && err == nil && r.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %+v, %v", c.what, r, err)
			}
		}
		if c.ends {
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Errorf("%s: it is connected still", c.what)
			}
		}
		_ = near.Close()
		close(l.ended)
		_ = srv.Close()
	}
}

// TestI11_SlowReadersHoldNoOpening: a client that doesn't read the answer that opens its session, or refuses it, keeps nobody
// else from opening one. Here a connection holds nothing, as one does whose buffers are full.
func TestI11_SlowReadersHoldNoOpening(t *testing.T) {
	t.Parallel()
	for _, message := range []string{initialize, ping("1")} {
		h := serve(t, nil).overHTTP("test", HTTPOptions{})
		h.write = time.Minute
		l := &pipes{make(chan net.Conn, 1), make(chan struct{})}
		srv := &http.Server{Handler: h}
		go func() { _ = srv.Serve(l) }()
		ask := func(text string) net.Conn {
			t.Helper()
			near, far := net.Pipe()
			l.conns <- far
			_ = near.SetDeadline(time.Now().Add(h.write / 2))
			if _, err := fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", HTTPPath, len(text), text); err != nil {
				t.Fatal(err)
			}
			return near
		}
		slow := ask(message)
		if _, err := slow.Read(make([]byte, 1)); err != nil { // it is being answered
			t.Fatal(err)
		}
		if r, err := http.ReadResponse(bufio.NewReader(ask(initialize)), nil); err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: the next client: %+v, %v", message, r, err)
		}
		_ = slow.Close()
		close(l.ended)
		_ = srv.Close()
	}
}

// TestI11_LongCallsHoldNoOpening: a session opens with one message. A batch with a call in it would keep others from opening
// one until the call has ended, as the twin shows: that batch behind the check.
func TestI11_LongCallsHoldNoOpening(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	p.says(t, false, "sandbox_create", m{"name": "default"})
	stuck := make(chan struct{})
	p.runner = hungRunner{hungMachine{hung{t, "exec", stuck, new(sync.Once)}}}
	srv, h := overHTTP(t, p, nil)
	first := strings.ReplaceAll(initialize, "2025-11-25", "2025-03-26")
	batch := "[" + first + `,{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_exec","arguments":{"command":"x"}}}]`
	for _, text := range []string{batch, "[" + first + "]", " \n[" + first + "]"} {
		if status, session, answer := post(t, srv.URL+HTTPPath, text, nil); status != http.StatusBadRequest || session != "" || !strings.Contains(answer, "alone") {
			t.Errorf("%s: %d %s", text, status, answer)
		}
	}
	status, session, text := post(t, srv.URL+HTTPPath, first, nil)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	old := map[string]string{"Mcp-Session-Id": session, "Mcp-Protocol-Version": "2025-03-26"}
	if status, _, text := post(t, srv.URL+HTTPPath, `[{"jsonrpc":"2.0","id":3,"method":"ping"}]`, old); status != http.StatusOK {
		t.Errorf("a batch in its session: %d %s", status, text)
	}

	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, HTTPPath, strings.NewReader(batch))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.sessions.open(httptest.NewRecorder(), r, h.old)
	}()
	<-stuck
	if h.sessions.opening.TryLock() {
		t.Error("the twin: others can open a session beside the batch")
		h.sessions.opening.Unlock()
	}
	p.calls.close()
	<-ended
}
