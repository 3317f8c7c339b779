package secretproxy

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/msb-project/msb/hostname"
)

// TestI7_SharedAddressesKeepHostsApart has both names pinned to the address of a
// connection: the host of a request must still be the one in its SNI.
func TestI7_SharedAddressesKeepHostsApart(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		f := flow(apiHost, apiAddr)
		f.Pinned = append(f.Pinned, hostname.MustParse(evilHost))
		var protocols http.Protocols
		protocols.SetHTTP1(!http2)
		protocols.SetHTTP2(http2)
		tr := &http.Transport{
			Protocols:       &protocols,
			DialContext:     func(context.Context, string, string) (net.Conn, error) { return w.pipe(f, false), nil },
			TLSClientConfig: &tls.Config{RootCAs: w.root, ServerName: evilHost},
		}
		defer tr.CloseIdleConnections()
		for host, want := range map[string]int{apiHost: http.StatusMisdirectedRequest, evilHost: http.StatusForbidden} {
			r := request(t, "GET", "https://"+evilHost+"/", nil, "Authorization", w.placeholder())
			r.Host = host
			if resp, body := do(t, &http.Client{Transport: tr}, r); resp.StatusCode != want || w.api.bytes()+w.evil.bytes() != "" {
				t.Errorf("SNI %s, host %s (http2 %v): status %d, want %d: %s; the servers got %q", evilHost, host, http2, resp.StatusCode, want, body, w.api.bytes()+w.evil.bytes())
			}
		}
	}
}

// TestEveryMethodOverrideIsJudged asks for a method that the judge denies in each
// field that frameworks know, and in the second of two.
func TestEveryMethodOverrideIsJudged(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} { // over HTTP/2, nobody has trimmed values before
		w := newWorld(t, echo)
		c := w.client(apiHost, apiAddr, http2)
		for _, fields := range [][]string{
			{"X-HTTP-Method-Override", "DELETE"}, {"X-HTTP-Method", "delete"}, {"X-Method-Override", " Delete "},
			{"X-HTTP-Method", "GET", "X-HTTP-Method", "DELETE"}, {"X-HTTP-Method-Override", "GET", "X-Method-Override", "DELETE"},
		} {
			resp, body := do(t, c, request(t, "POST", "https://"+apiHost+"/", nil, fields...))
			if resp.StatusCode != http.StatusForbidden || w.api.bytes() != "" {
				t.Errorf("%q (http2 %v): status %d: %s; the server got %q", fields, http2, resp.StatusCode, body, w.api.bytes())
			}
		}
	}
}

// TestI9_SemicolonsHideNoParameter hides a parameter in another: servers that split at
// semicolons would read the value under a name that is not listed.
func TestI9_SemicolonsHideNoParameter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, query("token"))))
	c := w.client(apiHost, apiAddr, false)
	for _, q := range []string{"token=a;log=@", "token=@;x=1", "a=1&token=;@", "token=@;"} {
		resp, body := do(t, c, request(t, "GET", "https://"+apiHost+"/?"+strings.ReplaceAll(q, "@", w.placeholder()), nil))
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "secret_place") || w.api.bytes() != "" {
			t.Errorf("%s: status %d: %s; the server got %q", q, resp.StatusCode, body, w.api.bytes())
		}
	}
}
