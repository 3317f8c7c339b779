//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// transport speaks HTTP/1.1 as other wgets do, by the proxies that the environment names.
func (w *wget) transport() http.RoundTripper {
	proxyOf := httpproxy.FromEnvironment().ProxyFunc()
	t := &http.Transport{
		Proxy: func(r *http.Request) (*url.URL, error) { return proxyOf(r.URL) }, DisableCompression: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: w.insecure}, //nolint:gosec // --no-check-certificate asks for it
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			limit := time.Duration(w.seconds * float64(time.Second))
			c, err := (&net.Dialer{Timeout: limit}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return idleConn{c, limit}, nil
		},
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
			if resp.StatusCode != http.StatusOK {
				return statusOf(resp)
			}
			return nil
		},
	}
	if w.noProxy {
		t.Proxy = nil
	}
	return &shownAnswers{w, t}
}

// idleConn fails when nothing moves for a time: -T is about silence, not about the length of a download.
type idleConn struct {
	net.Conn
	limit time.Duration
}

// Read implements net.Conn.
func (c idleConn) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.limit))
	return c.Conn.Read(b)
}

// Write implements net.Conn. An upload lets the pending read of the answer wait on.
func (c idleConn) Write(b []byte) (int, error) {
	_ = c.SetDeadline(time.Now().Add(c.limit))
	return c.Conn.Write(b)
}

// shownAnswers prints the heads of all answers for -S, those of redirects too.
type shownAnswers struct {
	w    *wget
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (s *shownAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(r)
	if err == nil && s.w.show {
		fmt.Fprintf(s.w.stderr, "  %s %s\n", resp.Proto, resp.Status)
		for name, values := range resp.Header {
			for _, v := range values {
				fmt.Fprintf(s.w.stderr, "  %s: %s\n", name, v)
			}
		}
	}
	return resp, err
}
