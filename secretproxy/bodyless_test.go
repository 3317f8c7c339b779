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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// emptyAnswer is an answer that has no body, whatever its fields say of one.
type emptyAnswer struct {
	method string
	status int
	fields string
}

// serveRaw answers each request on l with what write makes of it, in bytes of HTTP/1.
func serveRaw(t *testing.T, w *world, l net.Listener, write func(r *http.Request) string) {
	t.Helper()
	var conns sync.WaitGroup
	serve := func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: w.api.TLS.Certificates, MinVersion: tls.VersionTLS12})
		defer s.Close()
		_ = s.SetDeadline(time.Now().Add(2 * time.Minute))
		for in := bufio.NewReader(s); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.WriteString(s, write(r))
		}
	}
	conns.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			conns.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); _ = w.proxy.Close(); conns.Wait() })
}

// TestAnswersWithoutBodyPass: an answer to HEAD, a 204 and a 304 have no body, although they may give the length
// and encoding of one (RFC 9110, section 8.6). Each arrives and its connection goes on, whichever version either
// side speaks.
func TestAnswersWithoutBodyPass(t *testing.T) {
	t.Parallel()
	var cases []emptyAnswer
	for _, c := range []emptyAnswer{{"GET", 304, ""}, {"GET", 204, ""}, {"HEAD", 200, ""}, {"HEAD", 304, ""}, {"HEAD", 404, ""}, {"POST", 304, ""}} {
		for _, length := range []string{"", "Content-Length: 0\r\n", "Content-Length: 5\r\n", "Content-Length: 500000\r\n"} {
			for _, fields := range []string{
				"", "Content-Encoding: gzip\r\n", "Content-Encoding: br\r\n", "Content-Encoding: none-such\r\n", "Content-Type: application/json\r\n",
				"Content-Type: application/grpc\r\nGrpc-Encoding: gzip\r\n", "Content-Type: text/plain; charset=ibm037\r\n",
			} {
				cases = append(cases, emptyAnswer{c.method, c.status, length + fields})
			}
		}
	}
	find := func(r *http.Request) *emptyAnswer {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		return &cases[n]
	}
	handler := func(rw http.ResponseWriter, r *http.Request) {
		c := find(r)
		for _, line := range strings.Split(c.fields, "\r\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				rw.Header().Set(name, value)
			}
		}
		rw.WriteHeader(c.status)
	}
	raw := func(r *http.Request) string {
		c := find(r)
		return fmt.Sprintf("HTTP/1.1 %d x\r\n%s\r\n", c.status, c.fields)
	}
	mint := secretIn(t, header("Authorization"))
	mint.Mint = &policies.Mint{Path: "/token", Fields: []string{"access_token"}}
	for secrets, options := range map[string][]option{"no secret": nil, "a secret": {withSecret(secretIn(t, header("Authorization")))}, "tokens": {withSecret(mint)}} {
		for _, rawServer := range []bool{false, true} {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			w := newWorld(t, handler, append(options, func(_ *policies.Policy, c *Config) {
				if rawServer {
					c.Dial = func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
					}
				}
			})...)
			if rawServer {
				serveRaw(t, w, l, raw)
			}
			for _, http2 := range []bool{false, true} {
				client := w.client(apiHost, apiAddr, http2)
				before := w.proxy.Stats().Connections
				for n, c := range cases {
					what := fmt.Sprintf("%s, HTTP/1 server %v, HTTP/2 guest %v: %v", secrets, rawServer, http2, c)
					resp, err := client.Do(request(t, c.method, fmt.Sprintf("https://%s/%d", apiHost, n), nil))
					if err != nil {
						t.Errorf("%s: %v", what, err)
						continue
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || len(body) > 0 || resp.StatusCode != c.status || resp.Header.Get("X-Msb-Reason") != "" {
						t.Errorf("%s: status %d, %q, %v", what, resp.StatusCode, body, err)
					}
				}
				if opened := w.proxy.Stats().Connections - before; opened > uint64(len(cases)/2) { // a slow client opens another now and then
					t.Errorf("%s, HTTP/1 server %v, HTTP/2 guest %v: took %d connections", secrets, rawServer, http2, opened)
				}
			}
		}
	}
}
