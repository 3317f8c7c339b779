package secretproxy

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// looseRequest is what the strict check refuses in four ways, with a
// placeholder in it.
func looseRequest(placeholder string) string {
	return "POST /second HTTP/1.1\nHost: " + apiHost + "\nAuthorization: Bearer\n " + placeholder +
		"\nContent-Length: 3\nTransfer-Encoding: chunked\n\n5\nhello\n0\n\n"
}

// An Upgrade field must not end the strict check, whether the server is asked
// to upgrade or not, and whether the next request waits for the answer or not.
func TestI9_UpgradesEndTheRequests(t *testing.T) {
	t.Parallel()
	for _, fields := range []string{
		"Upgrade: x\r\n",
		"Upgrade: h2c\r\n",
		"Upgrade:\r\n",
		"Connection: keep-alive\r\nUpgrade: websocket\r\n",
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: x\r\n",
		"Connection: Upgrade\r\nUpgrade: websocket\r\n",
		"Content-Length: 4\r\nUpgrade: x\r\n",
		"Transfer-Encoding: chunked\r\nUpgrade: x\r\n",
	} {
		for _, pipelined := range []bool{true, false} {
			for _, plain := range []bool{true, false} {
				w := wantsSecret(t, echo)
				behindUpgrade(t, w, fields, pipelined, plain)
			}
		}
	}
}

func behindUpgrade(t *testing.T, w *world, fields string, pipelined, plain bool) {
	t.Helper()
	var c io.ReadWriteCloser
	server := w.api
	if plain {
		w.plain = newRecordingServer(t, apiHost, nil, echo)
		server = w.plain
		c = w.pipe(flow(apiHost, plainAddr), true)
	} else {
		c = w.tlsConn(apiHost, apiAddr, "http/1.1")
	}
	defer c.Close()
	first := "GET /first HTTP/1.1\r\nHost: " + apiHost + "\r\n" + fields + "\r\n"
	switch {
	case strings.HasPrefix(fields, "Content-Length"):
		first += "body"
	case strings.HasPrefix(fields, "Transfer"):
		first += "4\r\nbody\r\n0\r\n\r\n"
	}
	if pipelined {
		first += looseRequest(w.placeholder())
	}
	if _, err := io.WriteString(c, first); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatalf("%q: %v", fields, err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatalf("%q: %v", fields, err)
	}
	if !resp.Close {
		t.Errorf("%q: the answer leaves the connection open: %v", fields, resp.Header)
	}
	if !pipelined {
		_, _ = io.WriteString(c, looseRequest(w.placeholder())) // may fail: it is closed
	}
	if rest, _ := io.ReadAll(br); len(rest) > 0 {
		t.Errorf("%q: a second answer came: %q", fields, rest)
	}
	if seen := server.bytes(); !strings.Contains(seen, "/first") || strings.Contains(seen, "/second") || strings.Contains(seen, realValue) {
		t.Errorf("%q: the server got %q", fields, seen)
	}
	if got := w.proxy.Stats().Requests; got != 1 {
		t.Errorf("%q: %d requests were read, want 1", fields, got)
	}
}

func TestI11_EarlyUpgradeBytesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := w.tlsConn(apiHost, apiAddr, "http/1.1")
	head := "GET / HTTP/1.1\r\nHost: " + apiHost + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
	_, _ = io.WriteString(c, head+strings.Repeat("x", maxEarly+1))
	// The server never answers: only giving the request up ends the connection.
	got, err := io.ReadAll(c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the request still waits, with more than the bound behind it")
	}
	if strings.HasPrefix(string(got), "HTTP/1.1 101") {
		t.Errorf("got %q", got)
	}
}
