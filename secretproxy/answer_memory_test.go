package secretproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// answers are the connections to servers that answer once and then wait.
type answers struct {
	mu    sync.Mutex
	conns []*answered
}

// answered is such a connection, as the proxy has it.
type answered struct {
	net.Conn
	read    atomic.Int64
	reading atomic.Bool
	said    atomic.Int64 // what the server wrote, 0 until it has written all
}

// Read implements io.Reader.
func (c *answered) Read(b []byte) (int, error) {
	c.reading.Store(true)
	n, err := c.Conn.Read(b)
	c.reading.Store(false) // first: who sees all bytes read, and reading, sees a later call
	c.read.Add(int64(n))
	return n, err
}

// taken reports whether the proxy has taken n answers in, with all that it holds for them, and waits for more.
func (a *answers) taken(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.conns {
		if said := c.said.Load(); said != 0 && c.read.Load() == said && c.reading.Load() {
			n--
		}
	}
	return n <= 0
}

// writeCounter counts what a server writes.
type writeCounter struct {
	net.Conn
	written int64
}

// Write implements io.Writer.
func (c *writeCounter) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written += int64(n)
	return n, err
}

// saysOnce has every server answer the first request of each connection with those bytes and then wait. overTLS is
// with HTTP/1.
func saysOnce(t *testing.T, w *world, answer string, overTLS bool) *answers {
	t.Helper()
	all := new(answers)
	var servers sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); servers.Wait() })
	leaf, err := w.public.authority.ForName(hostname.MustParse(apiHost))
	if err != nil {
		t.Fatal(err)
	}
	dial := func(context.Context, hostname.Name, netip.AddrPort) (net.Conn, error) {
		proxy, far := tcpPair(t)
		conn := &answered{Conn: proxy}
		all.mu.Lock()
		all.conns = append(all.conns, conn)
		all.mu.Unlock()
		servers.Go(func() {
			counter := &writeCounter{Conn: far}
			var server net.Conn = counter
			defer server.Close()
			defer context.AfterFunc(ctx, func() { _ = far.Close() })()
			if overTLS {
				server = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12})
			}
			if _, err := http.ReadRequest(bufio.NewReader(server)); err == nil {
				_, _ = io.WriteString(server, answer)
				conn.said.Store(counter.written)
				_, _ = io.Copy(io.Discard, server)
			}
		})
		return conn, nil
	}
	w.proxy.cfg.Dial, w.proxy.cfg.DialTLS = dial, dial
	return all
}

// fields are lines of a head, size bytes of them: of names that differ, which take most of a parser's memory, of one
// name, or of long values.
func fields(kind string, size int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var out strings.Builder
	for i := 0; out.Len() < size-1100; i++ {
		switch kind {
		case "names":
			fmt.Fprintf(&out, "%c%c%c:\n", letters[i%36], letters[i/36%36], letters[i/36/36])
		case "one name":
			out.WriteString("a:\n")
		default:
			fmt.Fprintf(&out, "X-%d: %s\r\n", i, strings.Repeat("v", 1000))
		}
	}
	return out.String()
}

// TestI11_UnfinishedAnswerHeadsAreCounted: what heads hold that a server doesn't end is in the budget; where that is
// used up, the next is refused. It isn't parallel: it looks at the heap.
func TestI11_UnfinishedAnswerHeadsAreCounted(t *testing.T) {
	const heads, slack = 30, 400 << 10 // slack is for the connections of one request, both ends of each
	for _, kind := range []string{"names", "one name", "long values"} {
		for _, overTLS := range []bool{false, true} {
			name := fmt.Sprintf("%s, over TLS %v", kind, overTLS)
			w := newWorld(t, echo, withMemory(2*memoryLimit), func(_ *policies.Policy, c *Config) { c.halfClose = time.Millisecond })
			head := "HTTP/1.1 200 OK\r\n" + fields(kind, maxAnswerHead)
			all := saysOnce(t, w, head, overTLS)
			ask := func() net.Conn {
				c := w.pipe(flow(apiHost, plainAddr), true)
				if overTLS {
					c = w.tlsConn(apiHost, apiAddr, "http/1.1")
				}
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\n\r\n")
				return c
			}
			before := heapNow()
			var conns []net.Conn
			for range heads {
				conns = append(conns, ask())
			}
			eventually(t, name+": the heads aren't read", func() bool { return all.taken(heads) })
			grown, held := heapNow()-before, w.proxy.Stats().Held
			if testing.Verbose() {
				t.Logf("%s: %d heads take %d KiB each, of which %d are counted", name, heads, grown/heads>>10, held/heads>>10)
			}
			if grown > held+heads*slack {
				t.Errorf("%s: the heap grew by %d KiB, of which %d are counted", name, grown>>10, held>>10)
			}
			w.proxy.memory.Take(2*memoryLimit - held)
			c := ask()
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("%s: with the budget used up: %v, %v", name, resp, err)
			}
			auditedFull(t, name, w)
			w.proxy.memory.Give(2*memoryLimit - held)
			for _, c := range append(conns, c) {
				_ = c.Close()
			}
			givesAllBack(t, name, w)
		}
	}
}

// TestI11_LargeAnswerHeadsAreRefused: whatever the server speaks, and those that are all hints.
func TestI11_LargeAnswerHeadsAreRefused(t *testing.T) {
	t.Parallel()
	refused := func(name string, w *world) {
		t.Helper()
		resp, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil))
		if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "upstream_protocol") {
			t.Errorf("%s: status %d, %.200s", name, resp.StatusCode, body)
		}
	}
	w := newWorld(t, echo)
	saysOnce(t, w, "HTTP/1.1 200 OK\r\n"+fields("long values", maxAnswerHead+(8<<10))+"Content-Length: 0\r\n\r\n", true)
	refused("HTTP/1", w)
	w = newWorld(t, echo)
	saysOnce(t, w, strings.Repeat("HTTP/1.1 103 Early Hints\r\n"+fields("names", 32<<10)+"\r\n", 10), true)
	refused("hints", w)
	for _, size := range []int{maxAnswerHead + 2000, 8 * maxAnswerHead} {
		refused(fmt.Sprint("HTTP/2, ", size), newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("X-Large", strings.Repeat("v", size))
		}))
	}
}

// TestI11_HintsFindNoRoom: they are left out then, and the answer passes.
func TestI11_HintsFindNoRoom(t *testing.T) {
	t.Parallel()
	for _, room := range []bool{false, true} {
		arrived, given := make(chan struct{}), make(chan struct{})
		w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
			close(arrived)
			<-given
			for range 900 {
				rw.Header().Add("Link", strings.Repeat("v", 30))
			}
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Del("Link")
		})
		go func() {
			<-arrived
			if !room {
				w.proxy.memory.Take(memoryLimit - w.proxy.Stats().Held - 160<<10)
			}
			close(given)
		}()
		var hints string
		resp, body := do(t, w.client(apiHost, apiAddr, true), traced(request(t, "GET", "https://"+apiHost+"/", nil), &hints))
		if resp.StatusCode != http.StatusOK || strings.Contains(hints, "vvv") != room {
			t.Errorf("room %v: status %d %s, hints %.100q", room, resp.StatusCode, body, hints)
		}
	}
}

// TestI11_TrailersAreCounted: an answer whose trailers find no room is broken off.
func TestI11_TrailersAreCounted(t *testing.T) {
	t.Parallel()
	for _, upstream2 := range []bool{true, false} {
		for _, room := range []bool{false, true} {
			ready := make(chan struct{})
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(rw, "x")
				_ = http.NewResponseController(rw).Flush()
				<-ready
				rw.Header().Set(http.TrailerPrefix+"X-Trailer", strings.Repeat("v", 10<<10))
			}, withSecret(secretIn(t, header("Authorization"))))
			if !upstream2 {
				w.api.TLS.NextProtos = []string{"http/1.1"}
			}
			resp, err := w.client(apiHost, apiAddr, true).Do(request(t, "GET", "https://"+apiHost+"/", nil))
			if err != nil {
				t.Fatal(err)
			}
			if !room {
				w.proxy.memory.Take(memoryLimit - w.proxy.Stats().Held)
			}
			close(ready)
			_, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			full := slices.ContainsFunc(w.events.of(audit.HTTPRequest), func(e audit.Event) bool { return e.Reason == "memory" })
			if (err == nil) != room || full == room || room && resp.Trailer.Get("X-Trailer") == "" {
				t.Errorf("upstream with HTTP/2 %v, room %v: %v, in the audit log %v, trailers %.100q", upstream2, room, err, full, resp.Trailer)
			}
		}
	}
}
