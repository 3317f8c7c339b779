package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/sandbox"
)

// timed is an answer whose connection has deadlines.
type timed struct {
	*httptest.ResponseRecorder
	reads, writes []time.Time
	late          bool // a piece was written without a deadline
}

func (d *timed) SetReadDeadline(at time.Time) error  { d.reads = append(d.reads, at); return nil }
func (d *timed) SetWriteDeadline(at time.Time) error { d.writes = append(d.writes, at); return nil }
func (d *timed) Write(b []byte) (int, error) {
	d.late = d.late || len(d.writes) == 0
	return d.ResponseRecorder.Write(b)
}

func localRequest(t *testing.T, body string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+HTTPPath, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+testToken)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r
}

// TestI11_HTTPClientsReadAndWriteInTime: a body has its deadline, which ends with the body, and each piece of an answer has
// one.
func TestI11_HTTPClientsReadAndWriteInTime(t *testing.T) {
	t.Parallel()
	_, h := overHTTP(t, serve(t, nil), nil)
	w := &timed{ResponseRecorder: httptest.NewRecorder()}
	before := time.Now()
	h.ServeHTTP(w, localRequest(t, "{"))
	after := time.Now()
	within := func(at time.Time, wait time.Duration) bool {
		return !at.Before(before.Add(wait)) && !at.After(after.Add(wait))
	}
	if len(w.reads) != 2 || !within(w.reads[0], bodyWait) || !w.reads[1].IsZero() {
		t.Errorf("deadlines to read: %v", w.reads)
	}
	if len(w.writes) == 0 || !within(w.writes[len(w.writes)-1], writeWait) || w.late {
		t.Errorf("deadlines to write: %v", w.writes)
	}
}

// TestBusyServersSayWhenToRetry, whatever they are full of.
func TestBusyServersSayWhenToRetry(t *testing.T) {
	t.Parallel()
	p := serve(t, nil)
	for what, fill := range map[string]func(*httpServer){
		"": func(*httpServer) {}, "requests at once": func(h *httpServer) { h.requests = make(chan struct{}) },
		"bytes of requests at once": func(h *httpServer) { h.held.Store(maxBodies) }, "sessions at once, and all are in use; end one with DELETE": func(h *httpServer) { h.sessions.most = 0 },
	} {
		_, h := overHTTP(t, p, fill)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, localRequest(t, initialize))
		want := map[bool]string{true: "200 ", false: "503 1"}[what == ""]
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("Retry-After")); got != want || !strings.Contains(w.Body.String(), what) {
			t.Errorf("%s: %q %s, want %q", what, got, w.Body, want)
		}
	}
}

// TestBodiesThatEndEarlyAreRefused, and count no more.
func TestBodiesThatEndEarlyAreRefused(t *testing.T) {
	t.Parallel()
	srv, h := overHTTP(t, serve(t, nil), nil)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n%s", HTTPPath, testToken, initialize); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 400 ") || !strings.Contains(string(text), `"id":null,"error":{"code":-32600,"message":"the body ends too early"}`) {
		t.Errorf("%s, %v", text, err)
	}
	srv.Close()
	if held := h.held.Load(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// TestI11_FaultsOfMessagesAreShort: what can't be decoded isn't repeated, nor is a long id.
func TestI11_FaultsOfMessagesAreShort(t *testing.T) {
	t.Parallel()
	const want = "no message of JSON-RPC 2.0: invalid message version tag "
	long := `{"jsonrpc":"` + strings.Repeat("<", 1<<20) + `","id":7,"method":"ping"}`
	l := onLine(t, false, time.Hour)
	go l.put(t, long)
	if r := l.answer(t); r.Error == nil || !strings.HasPrefix(r.Error.Message, want) || !strings.HasSuffix(r.Error.Message, "…") || len(r.Error.Message) > maxFault {
		t.Errorf("%.300s", l.out.Text())
	}
	srv, _ := overHTTP(t, l.playground, nil)
	if status, _, text := post(t, srv.URL+HTTPPath, long, nil); status != http.StatusBadRequest || !strings.Contains(text, want) || len(text) > 4*maxFault {
		t.Errorf("%d %.300s", status, text)
	}
	number := "1" + strings.Repeat("0", maxID-1)
	for id, want := range map[string]string{number: number, number + "0": "null"} {
		go l.put(t, ping(id))
		if r := l.answer(t); string(r.ID) != want || r.Error == nil {
			t.Errorf("an id of %d bytes: %s", len(id), l.out.Text())
		}
	}
}

// TestI11_FractionsCancelNothing: go-sdk would cut them off.
func TestI11_FractionsCancelNothing(t *testing.T) {
	t.Parallel()
	id, err := jsonrpc.MakeID(1.0)
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{open: map[jsonrpc.ID]*inflight{id: {}}}
	for _, params := range []string{`{"requestId":1.5}`, `{"requestId":1,"requestId":1}`, `{}`, `{"requestId":null}`, `{"requestId":1}`} {
		if got := c.wanted(&jsonrpc.Request{Method: "notifications/cancelled", Params: json.RawMessage(params)}); got != (params == `{"requestId":1}`) {
			t.Errorf("%s: taken %v", params, got)
		}
	}
}

// TestClosedPipesEndTheServer: a client that closes the pipe is its end, and no fault of the server's.
func TestClosedPipesEndTheServer(t *testing.T) {
	t.Parallel()
	inR, inW := io.Pipe()
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	made, err := (&transport{inR, outW, time.Hour, time.Millisecond}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = outR.Close()
	if _, err := io.WriteString(inW, "{\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := made.Read(t.Context()); err != io.EOF { //nolint:errorlint // go-sdk looks for the very one
		t.Errorf("read %v", err)
	}
	_ = made.Close()
}

// failing is a standard output that fails with another error than a closed pipe's.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errBoom }
func (failing) Close() error              { return nil }

// TestFaultsOfOutputEndTheServer, which says what was wrong.
func TestFaultsOfOutputEndTheServer(t *testing.T) {
	t.Parallel()
	inR, inW := io.Pipe()
	made, err := (&transport{inR, failing{}, time.Hour, time.Millisecond}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(inW, "{\n") }()
	if _, err := made.Read(t.Context()); !errors.Is(err, errBoom) {
		t.Errorf("read %v", err)
	}
	_ = made.Close()
}

// TestPendingAnswersAreWrittenAtTheEnd, to a client that reads.
func TestPendingAnswersAreWrittenAtTheEnd(t *testing.T) {
	t.Parallel()
	const n = 100
	synctest.Test(t, func(t *testing.T) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		made, err := (&transport{inR, outW, time.Hour, time.Hour}).Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(inW, strings.Repeat("{\n", n)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		closed := make(chan error, 1)
		go func() { closed <- made.Close() }()
		synctest.Wait()
		answers := 0
		for lines := bufio.NewScanner(outR); lines.Scan(); {
			answers++
		}
		if err := <-closed; answers != n || err != nil {
			t.Errorf("%d answers of %d, %v", answers, n, err)
		}
	})
}

// TestServersLogWhatIsWrong as they start, over both transports.
func TestServersLogWhatIsWrong(t *testing.T) {
	t.Parallel()
	if ram() == 0 {
		t.Skip("the memory of this machine is unknown")
	}
	home := newHome(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for over, want := range map[int64]int{0: 0, 1: 1} {
		o := Options{Home: home, Floor: policies.Default(), Memory: ram() + over}
		for what, run := range map[string]func(*slog.Logger) error{
			"stdio": func(log *slog.Logger) error {
				return Serve(ctx, o, "test", io.NopCloser(strings.NewReader("")), failing{}, log)
			},
			"HTTP": func(log *slog.Logger) error {
				l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				return ServeHTTP(ctx, o, "test", l, HTTPOptions{}, log)
			},
		} {
			var log bytes.Buffer
			if err := run(slog.New(slog.NewTextHandler(&log, nil))); err != nil || strings.Count(log.String(), "level=WARN msg=\"a sandbox may have") != want {
				t.Errorf("%s, %d bytes more: %s, %v", what, over, log.String(), err)
			}
		}
	}
}

// TestEndedServersEndTheirCalls at once: their clients may still read, and wait for no other end.
func TestEndedServersEndTheirCalls(t *testing.T) {
	t.Parallel()
	s, err := newServer(Options{Home: newHome(t)}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	s.calls.patience = time.Hour
	running := make(chan struct{})
	s.runner = &fakeRunner{running: map[string]*fakeMachine{}, exec: func(ctx context.Context, _ sandbox.ExecOptions) (sandbox.ExitStatus, error) {
		close(running)
		<-ctx.Done()
		return sandbox.ExitStatus{}, ctx.Err()
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	go func() { _, _ = io.Copy(io.Discard, outR) }()
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, "test", &transport{inR, outW, time.Hour, time.Hour}) }()
	for _, line := range []string{`{"jsonrpc":"2.0","id":"init","method":"initialize","params":` + initParams("2025-06-18") + "}", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, execCall(1, "x")} {
		if _, err := io.WriteString(inW, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	<-running
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute): // it is done at once, and waits for an hour without
		t.Error("the server waits for a call that goes on")
	}
}

// TestLogsOutliveTheirDirectory: lines that can't be written are dropped, and those behind them are written.
func TestLogsOutliveTheirDirectory(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	l, err := OpenLogFile(home)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	line := []byte(strings.Repeat("x", maxLogLine-1) + "\n")
	if err := os.Rename(home.Dir(), home.Dir()+"-away"); err != nil {
		t.Fatal(err)
	}
	for range maxLogFile/maxLogLine + 2 {
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := os.Rename(home.Dir()+"-away", home.Dir()); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Write([]byte("a line\n")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(home.Dir(), LogFile)); !strings.HasSuffix(string(b), " a line\n") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
