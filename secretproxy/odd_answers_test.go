package secretproxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msb-project/msb/hostname"
	"github.com/msb-project/msb/policies"
)

// TestI10_AnEmptyEncodingHidesNoOther: the first of two Content-Encoding fields says nothing, the second
// says gzip.
func TestI10_AnEmptyEncodingHidesNoOther(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, realValue)
	_ = z.Close()
	for _, fields := range [][]string{{"", "gzip"}, {" , ", "gzip"}, {"gzip", ""}} {
		w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header()["Content-Encoding"] = fields
			_, _ = rw.Write(zipped.Bytes())
		})
		resp, body := do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil))
		if body != w.placeholder() {
			t.Errorf("%q: the guest got %v %q", fields, resp.Header, body)
		}
	}
}

// TestI10_EmptyAnswersTrailersAreMasked: a length of zero is not the end of an answer over HTTP/2.
func TestI10_EmptyAnswersTrailersAreMasked(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := wantsSecret(t, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "0")
			rw.Header().Set("Content-Encoding", "gzip")
			rw.Header().Set("Trailer", "X-Announced")
			rw.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(rw).Flush()
			rw.Header().Set("X-Announced", realValue)
			rw.Header().Set(http.TrailerPrefix+"X-Late", realValue)
		})
		resp, body := do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", "https://"+apiHost+"/", nil))
		for _, name := range []string{"X-Announced", "X-Late"} {
			if got := resp.Trailer.Get(name); got != w.placeholder() {
				t.Errorf("http2 %v: %s is %q, want the placeholder", http2, name, got)
			}
		}
		if resp.StatusCode != http.StatusOK || body != "" {
			t.Errorf("http2 %v: status %d, %q", http2, resp.StatusCode, body)
		}
	}
}

// TestI10_ValuesInFieldNamesAreRemoved: net/http writes names in a case of its own.
func TestI10_ValuesInFieldNamesAreRemoved(t *testing.T) {
	t.Parallel()
	s := secretIn(t, header("Authorization"))
	if err := os.WriteFile(s.From.Value, []byte("aBcDeFgH-iJkLm"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header()["x-"+r.Header.Get("Authorization")] = []string{"1"}
	}, withSecret(s))
	for _, http2 := range []bool{false, true} {
		resp, _ := do(t, w.client(apiHost, apiAddr, http2), request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder()))
		if got := strings.ToLower(fmt.Sprint(resp.Header)); strings.Contains(got, "abcdefgh") {
			t.Errorf("http2 %v: the guest got %s", http2, got)
		}
	}
}

// TestInvalidStatusCodesAreNamed: net/http's client takes any three digits, its server panics below 100.
func TestInvalidStatusCodesAreNamed(t *testing.T) {
	t.Parallel()
	for _, status := range []string{"000", "042", "099"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))), func(_ *policies.Policy, c *Config) {
			c.Dial = func(ctx context.Context, _ hostname.Name, _ netip.AddrPort) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
			}
		})
		served := make(chan struct{})
		go func() {
			defer close(served)
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := tls.Server(c, &tls.Config{Certificates: w.api.TLS.Certificates, MinVersion: tls.VersionTLS12})
			defer s.Close()
			_ = s.SetDeadline(time.Now().Add(60 * time.Second))
			_, _ = s.Read(make([]byte, 4096))
			_, _ = io.WriteString(s, "HTTP/1.1 "+status+" "+realValue+"\r\nContent-Length: 2\r\n\r\nhi")
			_, _ = io.Copy(io.Discard, s)
		}()
		t.Cleanup(func() { _ = l.Close(); <-served })
		resp, body := do(t, w.client(apiHost, apiAddr, true), request(t, "GET", "https://"+apiHost+"/", nil))
		var refused refusalBody
		if err := json.Unmarshal([]byte(body), &refused); err != nil || resp.StatusCode != http.StatusBadGateway || refused.Cause != "protocol" {
			t.Errorf("%s: status %d: %q", status, resp.StatusCode, body)
		}
	}
}
