package secretproxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/policies"
	"github.com/msb-project/msb/secretproxy/sigv4"
)

func withMemory(n int64) option { return func(_ *policies.Policy, c *Config) { c.memory = n } }

// endless gives that many bytes.
type endless struct{ left, given atomic.Int64 }

func newEndless(n int64) *endless {
	e := new(endless)
	e.left.Store(n)
	return e
}

var fillerA = strings.Repeat("A", 32<<10)

// Read implements io.Reader.
func (e *endless) Read(p []byte) (int, error) {
	n := min(int64(len(p)), e.left.Load())
	if n == 0 {
		return 0, io.EOF
	}
	for rest := p[:n]; len(rest) > 0; {
		rest = rest[copy(rest, fillerA):]
	}
	e.left.Add(-n)
	e.given.Add(n)
	return int(n), nil
}

// eventually waits for what other goroutines bring about.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); {
		if time.Now().After(deadline) {
			t.Fatal("timed out: " + what)
		}
		<-time.After(time.Millisecond)
	}
}

// givesAllBack fails unless nothing is held once the guest has left.
func givesAllBack(t *testing.T, name string, w *world, clients ...*http.Client) {
	t.Helper()
	eventually(t, name+": bytes are held that nobody holds", func() bool {
		for _, c := range clients { // each time: a request's end may come later than its answer
			c.CloseIdleConnections()
		}
		s := w.proxy.Stats()
		return s.Held == s.Values
	})
}

// auditedFull fails unless the audit log has a line about the bound.
func auditedFull(t *testing.T, name string, w *world) {
	t.Helper()
	full := func(e audit.Event) bool { return e.Reason == "memory" && e.Status == http.StatusServiceUnavailable }
	if !slices.ContainsFunc(w.events.of(audit.HTTPRequest), full) || w.proxy.Stats().Full == 0 {
		t.Errorf("%s: no line about it in the audit log, or not counted: %+v", name, w.proxy.Stats())
	}
}

// longValue is a secret with a value of that length in a header or body, and a short placeholder.
func longValue(t *testing.T, n int, places ...policies.Place) policies.Secret {
	t.Helper()
	s := secretIn(t, places...)
	s.Placeholder = "t{16}"
	if err := os.WriteFile(s.From.Value, []byte(strings.Repeat("vX", n/2)), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestI11_WhatARequestHoldsIsBounded: each of these requests or answers is fine where there is room, and is
// answered with 503 where there is not; in either case nothing stays held.
func TestI11_WhatARequestHoldsIsBounded(t *testing.T) {
	t.Parallel()
	aws := func(t *testing.T, memory int64) *world {
		return awsWorld(t, "s3", realKeyID+":"+realSecretKey, withMemory(memory))
	}
	chunk := func(n int) string {
		zeros := strings.Repeat("0", 64)
		return fmt.Sprintf("%x;chunk-signature=%s\r\n%s\r\n0;chunk-signature=%s\r\n\r\n", n, zeros, strings.Repeat("x", n), zeros)
	}
	for name, c := range map[string]struct {
		needs int64 // more than what is too little, less than enough
		world func(t *testing.T, memory int64) *world
		req   func(t *testing.T, w *world) *http.Request
	}{
		"a body to be hashed": {4 << 20, aws, func(t *testing.T, w *world) *http.Request {
			return guestSigns(t, request(t, "PUT", "https://"+apiHost+"/k", strings.NewReader(strings.Repeat("x", 3<<20))), w, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "s3", "eu-central-1")
		}},
		"a signed chunk": {4 << 20, aws, func(t *testing.T, w *world) *http.Request {
			r := request(t, "PUT", "https://"+apiHost+"/k", strings.NewReader(chunk(3<<20)), sigv4.ContentSHA256Header, sigv4.StreamingPayload)
			return guestSigns(t, r, w, sigv4.StreamingPayload, "s3", "eu-central-1")
		}},
		"a body that gets a value": {3 << 19, func(t *testing.T, memory int64) *world {
			return newWorld(t, func(http.ResponseWriter, *http.Request) {}, withSecret(secretIn(t, policies.Place{Kind: policies.InBody})), withMemory(memory))
		}, func(t *testing.T, w *world) *http.Request {
			return request(t, "POST", "https://"+apiHost+"/", strings.NewReader(strings.Repeat("x", 1<<20-100)+w.placeholder()))
		}},
		"a head that gets values": {1 << 20, func(t *testing.T, memory int64) *world {
			w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, withSecret(longValue(t, 8000, header("Authorization"))), withMemory(memory))
			w.api.Config.MaxHeaderBytes = 4 << 20
			return w
		}, func(t *testing.T, w *world) *http.Request {
			return request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", strings.Repeat(w.placeholder(), 100))
		}},
		"an answer in brotli": {10 << 20, func(t *testing.T, memory int64) *world {
			return newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Encoding", "br")
				_, _ = rw.Write(compress(t, "br", strings.Repeat("x", 1<<20)))
			}, withSecret(secretIn(t, header("Authorization"))), withMemory(memory))
		}, func(t *testing.T, _ *world) *http.Request { return request(t, "GET", "https://"+apiHost+"/", nil) }},
		"an answer without length": {512 << 10, func(t *testing.T, memory int64) *world {
			return newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				_ = http.NewResponseController(rw).Flush()
				_, _ = io.WriteString(rw, "x")
			}, withMemory(memory))
		}, func(t *testing.T, _ *world) *http.Request { return request(t, "GET", "https://"+apiHost+"/", nil) }},
		"an answer that may hold tokens": {512 << 10, func(t *testing.T, memory int64) *world {
			s := secretIn(t, header("Authorization"))
			s.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
			return newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(rw, `{"x":"`+strings.Repeat("x", 200<<10)+`","access_token":"real-access-token"}`)
			}, withSecret(s), withMemory(memory))
		}, func(t *testing.T, _ *world) *http.Request { return request(t, "GET", "https://"+apiHost+"/", nil) }},
		"an answer's head": {256 << 10, func(t *testing.T, memory int64) *world {
			return newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
				for i := range 10 {
					rw.Header().Set(fmt.Sprint("X-", i), strings.Repeat("x", 6<<10))
				}
			}, withMemory(memory))
		}, func(t *testing.T, _ *world) *http.Request { return request(t, "GET", "https://"+apiHost+"/", nil) }},
	} {
		for _, http2 := range []bool{false, true} {
			w := c.world(t, c.needs)
			client := w.client(apiHost, apiAddr, http2)
			resp, body := do(t, client, c.req(t, w))
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Msb-Reason") != "memory" {
				t.Errorf("%s, too little room, http2 %v: status %d, %.200s", name, http2, resp.StatusCode, body)
			}
			auditedFull(t, name, w)
			givesAllBack(t, name, w, client)
			w = c.world(t, memoryLimit)
			client = w.client(apiHost, apiAddr, http2)
			if resp, body := do(t, client, c.req(t, w)); resp.StatusCode != http.StatusOK {
				t.Errorf("%s, room enough, http2 %v: status %d, %.200s", name, http2, resp.StatusCode, body)
			}
			givesAllBack(t, name, w, client)
		}
	}
}

// TestI11_SwappedHeadsAreBounded: 64 KiB of placeholders would become 30 MiB of values, as fields or as
// a query.
func TestI11_SwappedHeadsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(longValue(t, 8000, header("Authorization"), query("key"))))
	p := w.placeholder()
	for _, http2 := range []bool{false, true} {
		many := request(t, "GET", "https://"+apiHost+"/", nil)
		for range 500 {
			many.Header.Add("Authorization", p+p)
		}
		for name, r := range map[string]*http.Request{
			"one field":   request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", strings.Repeat(p, 3000)),
			"many fields": many,
			"the query":   request(t, "GET", "https://"+apiHost+"/?key="+strings.Repeat(p, 1500), nil),
		} {
			resp, body := do(t, w.client(apiHost, apiAddr, http2), r)
			if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge || !strings.Contains(body, "head_too_large") {
				t.Errorf("%s, http2 %v: status %d, %.100s", name, http2, resp.StatusCode, body)
			}
		}
	}
	if got := w.api.bytes(); got != "" {
		t.Errorf("the server got %.100q", got)
	}
}

// TestI11_AChunkLineIsBounded: the line before a signed chunk never ends.
func TestI11_AChunkLineIsBounded(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := awsWorld(t, "s3", realKeyID+":"+realSecretKey, withMemory(4<<20))
		body := newEndless(256 << 20)
		r := request(t, "PUT", "https://"+apiHost+"/b/k", io.NopCloser(body), sigv4.ContentSHA256Header, sigv4.StreamingPayload)
		client := w.client(apiHost, apiAddr, http2)
		resp, err := client.Do(guestSigns(t, r, w, sigv4.StreamingPayload, "s3", "eu-central-1"))
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode < http.StatusBadRequest {
				t.Errorf("http2 %v: status %d", http2, resp.StatusCode)
			}
		}
		if n := body.given.Load(); n > 64<<20 {
			t.Errorf("http2 %v: %d bytes were taken of a line without an end", http2, n)
		}
		givesAllBack(t, "a chunk line", w, client)
	}
}

// TestI11_HeadsOfWaitingRequestsAreBounded: requests that wait for a server hold their heads.
func TestI11_HeadsOfWaitingRequestsAreBounded(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		hold := make(chan struct{})
		w := newWorld(t, func(http.ResponseWriter, *http.Request) { <-hold }, withMemory(2<<20))
		client := w.client(apiHost, apiAddr, http2)
		const requests = 40
		var full, fine atomic.Int32
		var all sync.WaitGroup
		for range requests {
			r := request(t, "GET", "https://"+apiHost+"/", nil, "X-Pad", strings.Repeat("x", 50<<10))
			all.Go(func() {
				resp, err := client.Do(r)
				if err != nil {
					if http2 {
						t.Error(err)
					}
					full.Add(1) // refused while its head was on its way: the answer may not outrun the reset
					return
				}
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusServiceUnavailable:
					full.Add(1)
				case http.StatusOK:
					fine.Add(1)
				}
			})
		}
		eventually(t, "nothing is refused", func() bool { return full.Load() > 0 })
		close(hold)
		all.Wait()
		if full.Load()+fine.Load() != requests || fine.Load() == 0 {
			t.Errorf("http2 %v: %d were refused, %d served, of %d", http2, full.Load(), fine.Load(), requests)
		}
		auditedFull(t, "waiting requests", w)
		givesAllBack(t, "waiting requests", w, client)
	}
}

// TestI11_UnfinishedHeadsAreBounded: connections that stand in the middle of a head, or hold what came behind a
// request for an upgrade.
func TestI11_UnfinishedHeadsAreBounded(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { <-hold }, withMemory(2<<20))
	defer close(hold)
	pad := strings.Repeat("x", 50<<10)
	for _, begin := range []string{
		"GET / HTTP/1.1\r\nHost: " + apiHost + "\r\nX: " + pad,
		"GET / HTTP/1.1\r\nHost: " + apiHost + "\r\n" + strings.Repeat("X: "+pad[:1000]+"\r\n", 50),
		"GET / HTTP/1.1\r\nHost: " + apiHost + "\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n" + pad,
	} {
		var conns []net.Conn
		ended := make(chan string, 60)
		for range cap(ended) {
			c := w.tlsConn(apiHost, apiAddr, "http/1.1")
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, _ = io.WriteString(c, begin)
			conns = append(conns, c)
			go func() {
				first, _ := bufio.NewReader(c).ReadString('\n')
				ended <- first
			}()
		}
		if first := <-ended; !strings.HasPrefix(first, "HTTP/1.1 503") && !strings.Contains(begin, "Upgrade") {
			t.Errorf("%.60q: the first connection that ends says %q", begin, first)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		for range cap(ended) - 1 {
			<-ended
		}
		givesAllBack(t, begin[:60], w)
	}
	auditedFull(t, "unfinished heads", w)
}

// TestI11_UploadsThatWaitAreBounded: bodies over HTTP/2 that the server doesn't read.
func TestI11_UploadsThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { <-hold }, withMemory(3<<20))
	var clients []*http.Client
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	var full atomic.Int32
	for range 6 {
		client := w.client(apiHost, apiAddr, true) // a connection of its own
		clients = append(clients, client)
		all.Go(func() {
			resp, err := client.Do(request(t, "POST", "https://"+apiHost+"/", newEndless(8<<20)).WithContext(ctx))
			if err == nil {
				_ = resp.Body.Close()
				full.Add(1)
			}
		})
	}
	eventually(t, "no upload is refused", func() bool { return full.Load() >= 3 })
	cancel()
	close(hold)
	all.Wait()
	auditedFull(t, "uploads", w)
	givesAllBack(t, "uploads", w, clients...)
}

// TestI11_DecompressionStaysWithinBudget: a few bytes that become megabytes end the answer.
func TestI11_DecompressionStaysWithinBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Grpc-Encoding", "gzip")
		_, _ = rw.Write(framed(1, compress(t, "gzip", strings.Repeat("x", 3<<20))))
	}, withSecret(secretIn(t, header("Authorization"))), withMemory(3<<20))
	client := w.client(apiHost, apiAddr, true)
	resp, err := client.Do(request(t, "GET", "https://"+apiHost+"/", nil))
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("the answer was whole")
	}
	auditedFull(t, "a message", w)
	givesAllBack(t, "a message", w, client)
}

// TestReadMessagesAreReleased: compressed messages of any number go through a budget that has room for a few.
func TestReadMessagesAreReleased(t *testing.T) {
	t.Parallel()
	const memory, size = 2 << 20, 64 << 10
	noise := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Grpc-Encoding", "gzip")
		message := framed(1, compress(t, "gzip", string(noise)))
		for range 2 * memory / size {
			_, _ = rw.Write(message)
		}
	}, withSecret(secretIn(t, header("Authorization"))), withMemory(memory))
	_, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+"/", nil))
	if want := strings.Repeat(string(framed(0, noise)), 2*memory/size); body != want {
		t.Errorf("%d bytes came, want %d", len(body), len(want))
	}
}

// TestRefusedUploadsAreCounted: what a guest sent in a request that was then refused came as far as the proxy.
func TestRefusedUploadsAreCounted(t *testing.T) {
	t.Parallel()
	var counted atomic.Int64
	count := func(_ *policies.Policy, c *Config) { c.Refused = func(n int64) { counted.Add(n) } }
	w := awsWorld(t, "s3", realKeyID+":"+realSecretKey, count)
	const size = 1 << 20
	body := strings.Repeat("x", 9*size)
	resp, _ := do(t, w.client(apiHost, apiAddr, true), guestSigns(t, request(t, "PUT", "https://"+apiHost+"/k", strings.NewReader(body)), w, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "s3", "eu-central-1"))
	if got := counted.Load(); resp.StatusCode != http.StatusRequestEntityTooLarge || got < 8*size || got > 9*size {
		t.Errorf("status %d, %d bytes were counted of %d", resp.StatusCode, got, len(body))
	}
	counted.Store(0)
	s := secretIn(t, policies.Place{Kind: policies.InBody})
	other := secretOf(t, "OTHER", "another-value-of-its-own-0123", header("Authorization"))
	w = newWorld(t, echo, withSecret(s), withSecret(other), count)
	text := strings.Repeat("x", size/2) + w.proxy.Placeholders()["OTHER"]
	resp, _ = do(t, w.client(apiHost, apiAddr, false), request(t, "POST", "https://"+apiHost+"/", strings.NewReader(text)))
	if got := counted.Load(); resp.StatusCode != http.StatusForbidden || got != int64(len(text)) {
		t.Errorf("a violation: status %d, %d bytes were counted of %d", resp.StatusCode, got, len(text))
	}
	counted.Store(0)
	if do(t, w.client(apiHost, apiAddr, false), request(t, "POST", "https://"+apiHost+"/", strings.NewReader(text[:size/2]))); counted.Load() != 0 {
		t.Errorf("%d bytes were counted of an upload that went out, and is counted there", counted.Load())
	}
}
