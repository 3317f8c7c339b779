package secretproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msb-project/msb/egress"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// closeWrite ends a guest's side as clients do: over TLS with a close_notify, a FIN, or the one and then the other.
var closeWrite = map[string]func(t *testing.T, c net.Conn){
	"close_notify": func(t *testing.T, c net.Conn) { mustDo(t, c.(*tls.Conn).CloseWrite) },
	"FIN":          func(t *testing.T, c net.Conn) { mustDo(t, tcpOf(c).CloseWrite) },
	"both": func(t *testing.T, c net.Conn) {
		mustDo(t, c.(*tls.Conn).CloseWrite)
		mustDo(t, tcpOf(c).CloseWrite)
	},
}

func tcpOf(c net.Conn) *net.TCPConn {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	return c.(*net.TCPConn)
}

func mustDo(t *testing.T, f func() error) {
	t.Helper()
	if err := f(); err != nil {
		t.Fatal(err)
	}
}

// slowWorld has a server that answers a request once its guest's side has ended and the proxy has seen that,
// and reports requests that were cancelled before.
func slowWorld(t *testing.T) (w *world, began, answer, cancelled chan struct{}) {
	t.Helper()
	began, answer, cancelled = make(chan struct{}), make(chan struct{}), make(chan struct{})
	handler := func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(began)
		select {
		case <-answer:
			_, _ = io.WriteString(rw, "the ")
			_ = http.NewResponseController(rw).Flush()
			_, _ = io.WriteString(rw, "answer")
		case <-r.Context().Done():
			close(cancelled)
		}
	}
	w = newWorld(t, handler)
	w.plain = newRecordingServer(t, apiHost, nil, handler)
	return w, began, answer, cancelled
}

func TestHalfClosedConnectionsGetTheirAnswer(t *testing.T) {
	t.Parallel()
	requests := map[string]string{
		"GET":     "GET / HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n",
		"length":  "POST / HTTP/1.1\r\nHost: " + apiHost + "\r\nContent-Length: 3\r\n\r\nabc",
		"chunked": "POST / HTTP/1.1\r\nHost: " + apiHost + "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	}
	for end, shut := range closeWrite {
		for kind, request := range requests {
			t.Run(end+"/"+kind, func(t *testing.T) {
				t.Parallel()
				w, began, answer, cancelled := slowWorld(t)
				halfClosed(t, w.tlsConn(apiHost, apiAddr), request, shut, began, answer, cancelled)
			})
		}
	}
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		w, began, answer, cancelled := slowWorld(t)
		f := flow(apiHost, plainAddr)
		f.App = egress.AppHTTP
		halfClosed(t, w.pipe(f, true), requests["GET"], closeWrite["FIN"], began, answer, cancelled)
	})
}

// halfClosed sends a request, ends its side, and wants the answer and then the end.
func halfClosed(t *testing.T, c net.Conn, request string, shut func(*testing.T, net.Conn), began, answer, cancelled chan struct{}) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	shut(t, c)
	select {
	case <-began:
	case <-time.After(60 * time.Second):
		t.Fatal("the request didn't reach the server")
	}
	select {
	case <-cancelled:
		t.Fatal("the request was cancelled")
	case <-time.After(200 * time.Millisecond): // a chance for the end to be seen; too short only misses a fault
	}
	close(answer)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "the answer" {
		t.Errorf("the answer is %d %q, %v", resp.StatusCode, body, err)
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the answer came no end: %v", err)
	}
}

// TestI11_HalfClosedConnectionsEnd: what a guest that closed both sides holds is let go of.
func TestI11_HalfClosedConnectionsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		limit  time.Duration
		answer bool
		end    func(w *world, guest net.Conn, revoke func())
	}{
		"by its flow":       {end: func(_ *world, _ net.Conn, revoke func()) { revoke() }},
		"by the proxy":      {end: func(w *world, _ net.Conn, _ func()) { _ = w.proxy.server.Close() }},
		"by time":           {limit: 50 * time.Millisecond, end: func(*world, net.Conn, func()) {}},
		"by a failed write": {answer: true, end: func(_ *world, guest net.Conn, _ func()) { _ = guest.Close() }},
		"by a full window":  {answer: true, limit: 50 * time.Millisecond, end: func(*world, net.Conn, func()) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began, cancelled := make(chan struct{}), make(chan struct{})
			handler := func(rw http.ResponseWriter, r *http.Request) {
				close(began)
				for c.answer && r.Context().Err() == nil {
					if _, err := rw.Write(make([]byte, 1<<10)); err != nil {
						break
					}
				}
				<-r.Context().Done()
				close(cancelled)
			}
			w := newWorld(t, handler, func(_ *policies.Policy, cfg *Config) { cfg.halfClose = c.limit })
			w.plain = newRecordingServer(t, apiHost, nil, handler)
			guest, revoke := w.revocable(flow(apiHost, plainAddr))
			if _, err := io.WriteString(guest, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			mustDo(t, tcpOf(guest).CloseWrite)
			<-began
			c.end(w, guest, revoke)
			select {
			case <-cancelled:
			case <-time.After(halfCloseTimeout / 2): // without the flow's end it waits twice as long
				t.Error("the request is still held")
			}
		})
	}
}

// halfClosedConn is the guest's connection, of which a request and the end were read.
type halfClosedConn struct {
	net.Conn
	request io.Reader
}

// Read implements net.Conn.
func (c *halfClosedConn) Read(b []byte) (int, error) { return c.request.Read(b) }

// TestHalfClosedConnectionsGetLongAnswers: only an answer that stops counts against the limit.
func TestHalfClosedConnectionsGetLongAnswers(t *testing.T) {
	t.Parallel()
	const pieces = 5
	synctest.Test(t, func(t *testing.T) {
		server, upstream := net.Pipe()
		p, err := New(Config{
			Sandbox: "test", Policy: policies.Default(), Judge: fakeJudge{},
			Dial: func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) { return upstream, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer server.Close()
			if _, err := http.ReadRequest(bufio.NewReader(server)); err != nil {
				t.Error(err)
			}
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
			for range pieces {
				time.Sleep(halfCloseTimeout * 3 / 4)
				_, _ = io.WriteString(server, "piece ")
			}
		}()
		guest, gateway := net.Pipe()
		request := strings.NewReader("GET / HTTP/1.1\r\nHost: " + apiHost + "\r\n\r\n")
		go p.ServeHTTP(context.Background(), &halfClosedConn{gateway, request}, flow(apiHost, plainAddr))
		resp, err := http.ReadResponse(bufio.NewReader(guest), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || string(body) != strings.Repeat("piece ", pieces) {
			t.Errorf("the answer is %q, %v", body, err)
		}
		_ = resp.Body.Close()
		_ = guest.Close()
		mustDo(t, p.Close)
	})
}

// TestAHalfClosedIncompleteRequestEnds: what is cut off is not waited for.
func TestAHalfClosedIncompleteRequestEnds(t *testing.T) {
	t.Parallel()
	w, _, _, _ := slowWorld(t)
	for _, request := range []string{"", "GET / HT", "GET / HTTP/1.1\r\nHost: " + apiHost + "\r\n"} {
		c := w.tlsConn(apiHost, apiAddr)
		_, _ = io.WriteString(c, request)
		mustDo(t, c.CloseWrite)
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("%q: %v", request, err)
		}
	}
}

// revocable is pipe for plain HTTP, with what ends its flow.
func (w *world) revocable(f egress.Flow) (guest net.Conn, revoke func()) {
	w.t.Helper()
	guest, gateway := tcpPair(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.proxy.ServeHTTP(ctx, gateway, f)
	}()
	w.t.Cleanup(func() { cancel(); _ = guest.Close(); <-done })
	return guest, cancel
}

// TestOnlyPastDeadlinesEndReads: net/http sets deadlines ahead too, and takes them back.
func TestOnlyPastDeadlinesEndReads(t *testing.T) {
	t.Parallel()
	var h halfClose
	h.setAnswering(true)
	for _, c := range []struct {
		name     string
		deadline time.Time
		ends     bool
	}{
		{"ahead", time.Now().Add(time.Hour), false},
		{"past", time.Unix(1, 0), true},
		{"none", time.Time{}, false},
		{"now", time.Now(), true},
	} {
		h.deadline(c.deadline)
		expired, left := h.look(time.Hour)
		if left <= 0 {
			t.Errorf("%s: %s left", c.name, left)
		}
		select {
		case <-expired:
			if !c.ends {
				t.Errorf("a deadline %s ended a read", c.name)
			}
		default:
			if c.ends {
				t.Errorf("a deadline %s ended no read", c.name)
			}
		}
	}
}
