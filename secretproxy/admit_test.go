package secretproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/msb-project/msb/audit"
	"github.com/msb-project/msb/egress"
)

func TestI7_HostMustBeTheSNI(t *testing.T) {
	t.Parallel()
	cases := []struct {
		host   string
		status int
	}{
		{apiHost, http.StatusOK},
		{"API.Example.COM", http.StatusOK},
		{apiHost + ".", http.StatusOK},
		{apiHost + ":443", http.StatusOK},
		{apiHost + ":0", http.StatusMisdirectedRequest},
		{apiHost + ":444", http.StatusMisdirectedRequest},
		{evilHost, http.StatusMisdirectedRequest},
		{"x." + apiHost, http.StatusMisdirectedRequest},
		{apiHost + ".evil.com", http.StatusMisdirectedRequest},
		{"evil-" + apiHost, http.StatusMisdirectedRequest},
		{"93.184.215.14", http.StatusMisdirectedRequest},
		{"[::1]", http.StatusMisdirectedRequest},
		{"0x7f000001", http.StatusMisdirectedRequest},
	}
	for _, c := range cases {
		for _, http2 := range []bool{false, true} {
			w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
			r := request(t, "GET", "https://"+apiHost+"/", nil, "Authorization", w.placeholder())
			r.Host = c.host
			resp, body := do(t, w.client(apiHost, apiAddr, http2), r)
			if resp.StatusCode != c.status {
				t.Errorf("Host %q (http2 %v): status %d, want %d: %s", c.host, http2, resp.StatusCode, c.status, body)
			}
			if c.status == http.StatusOK {
				continue
			}
			if w.api.bytes()+w.evil.bytes() != "" {
				t.Errorf("Host %q (http2 %v): a server got %q", c.host, http2, w.api.bytes()+w.evil.bytes())
			}
			if e := w.events.of(audit.HTTPRequest)[0]; e.Host != "" {
				t.Errorf("Host %q (http2 %v): %q is logged as the host", c.host, http2, e.Host)
			}
		}
	}
}

// Without a name, Host is the address that was dialled; with one, no address stands for it.
func TestI7_HostMustBeTheAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flow, host string
		status     int
	}{
		{"", plainAddr.Addr().String(), http.StatusOK},
		{"", plainAddr.String(), http.StatusOK},
		{"", "[::ffff:" + plainAddr.Addr().String() + "]", http.StatusOK},
		{"", evilAddr.Addr().String(), http.StatusMisdirectedRequest},
		{"", "[::1]", http.StatusMisdirectedRequest},
		{"", apiHost, http.StatusMisdirectedRequest},
		{apiHost, plainAddr.Addr().String(), http.StatusMisdirectedRequest},
		{apiHost, apiHost, http.StatusOK},
	} {
		w := newWorld(t, echo)
		w.plain = newRecordingServer(t, apiHost, nil, echo)
		conn := w.pipe(flow(c.flow, plainAddr), true)
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+c.host+"\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.status || c.status != http.StatusOK && w.plain.bytes() != "" {
			t.Errorf("to %q, Host %s: status %d, want %d; the server got %q", c.flow, c.host, resp.StatusCode, c.status, w.plain.bytes())
		}
		logged := map[string]string{"": plainAddr.Addr().String(), apiHost: ""}[c.flow]
		if c.flow != "" && c.status == http.StatusOK {
			logged = apiHost
		}
		if e := w.events.of(audit.HTTPRequest)[0]; e.Host != logged {
			t.Errorf("to %q, Host %s: %q is logged as the host, want %q", c.flow, c.host, e.Host, logged)
		}
	}
}

func TestI7_HandshakeForAnotherNameIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	for _, sni := range []string{evilHost, "", "x." + apiHost} {
		c := tls.Client(w.pipe(flow(apiHost, apiAddr), false), &tls.Config{ServerName: sni, InsecureSkipVerify: true})
		if err := c.Handshake(); err == nil {
			t.Errorf("SNI %q: the handshake went through", sni)
		}
	}
	for _, e := range w.events.of(audit.HTTPRequest) {
		if e.Action != "deny" {
			t.Errorf("event %+v, want a denial", e)
		}
	}
}

// open counts requests that were judged and are not over.
type open struct{ atomic.Int64 }

func (o *open) Request(*egress.Flow) (egress.Verdict, func()) {
	o.Add(1)
	return egress.Verdict{Action: egress.Allow}, func() { o.Add(-1) }
}

// TestI16_JudgesLearnWhenRequestsEnd: when a request is over, done is called once for each method that it was judged by.
func TestI16_JudgesLearnWhenRequestsEnd(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var requests open
		during := make(chan int64, 1)
		w := newWorld(t, func(http.ResponseWriter, *http.Request) { during <- requests.Load() })
		f := flow(apiHost, apiAddr)
		c := w.client(apiHost, apiAddr, http2)
		tr := c.Transport.(*http.Transport)
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) {
			guest, gateway := tcpPair(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				w.proxy.ServeTLS(WithFlow(context.Background(), 1, &requests), gateway, f)
			}()
			t.Cleanup(func() { _ = guest.Close(); <-served })
			return guest, nil
		}
		do(t, c, request(t, "POST", "https://"+apiHost+"/", nil, "X-HTTP-Method", "PUT"))
		if n := <-during; n != 2 {
			t.Errorf("http2 %v: %d judged while the request is under way, want 2", http2, n)
		}
		eventually(t, "no request is open", func() bool { return requests.Load() == 0 })
	}
}

func TestLiteralAddressesGetTheirLeaf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	c := tls.Client(w.pipe(flow("", apiAddr), false), &tls.Config{RootCAs: w.root, ServerName: apiAddr.Addr().String()})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
}

func TestEveryRequestIsJudged(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		w := newWorld(t, echo)
		c := w.client(apiHost, apiAddr, http2)
		for path, want := range map[string]int{"/ok": http.StatusOK, "/forbidden/x": http.StatusForbidden, "/ok2": http.StatusOK} {
			resp, body := do(t, c, request(t, "GET", "https://"+apiHost+path, nil))
			if resp.StatusCode != want {
				t.Errorf("%s: status %d, want %d: %s", path, resp.StatusCode, want, body)
			}
			var refused refusalBody
			if want == http.StatusForbidden && (json.Unmarshal([]byte(body), &refused) != nil || refused.Rule != "test rule" || refused.Reason != "path_not_allowed") {
				t.Errorf("%s: %s", path, body)
			}
		}
		if n := len(w.events.of(audit.HTTPRequest)); n != 3 {
			t.Errorf("%d events, want one for each of 3 requests", n)
		}
	}
}

func TestMethodOverrideIsJudgedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	c := w.client(apiHost, apiAddr, false)
	resp, body := do(t, c, request(t, "POST", "https://"+apiHost+"/", nil, "X-HTTP-Method-Override", "delete"))
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

func TestRewriteHeadersAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
	do(t, w.client(apiHost, apiAddr, false), request(t, "GET", "https://"+apiHost+"/", nil,
		"Authorization", w.placeholder(), "X-Forwarded-Host", evilHost, "X-Original-URL", "/admin", "Forwarded", "host="+evilHost,
		"Proxy-Authorization", "x", "Connection", "x-secret-hop", "X-Secret-Hop", "1",
		"X_HTTP_METHOD_OVERRIDE", "DELETE", "X-Forwarded_Host", evilHost, "X-Forwarded-Server", evilHost, "X-Host", evilHost, "X-Rewrite-URL", "/forbidden"))
	for _, name := range []string{"X_http_method_override", "X-Forwarded_host", "X-Forwarded-Server", "X-Host", "X-Rewrite-Url", "X-Forwarded-Host", "X-Original-Url", "Forwarded", "Proxy-Authorization", "X-Secret-Hop"} {
		if strings.Contains(w.api.bytes(), name+":") {
			t.Errorf("%s reached the server: %q", name, w.api.bytes())
		}
	}
	if !strings.Contains(w.api.bytes(), realValue) {
		t.Errorf("the value did not reach the server: %q", w.api.bytes())
	}
}

// rawRequests are bytes that no two parsers need read alike. @ stands for the
// placeholder.
func rawRequests() map[string]string {
	ok := "Host: " + apiHost + "\r\n"
	auth := "Authorization: @\r\n"
	return map[string]string{
		"bare LF":                   "GET / HTTP/1.1\nHost: " + apiHost + "\n" + "Authorization: @\n\n",
		"bare LF in a field":        "GET / HTTP/1.1\r\n" + ok + "X: a\nAuthorization: @\r\n\r\n",
		"bare CR":                   "GET / HTTP/1.1\r\n" + ok + "X: a\rAuthorization: @\r\n\r\n",
		"NUL":                       "GET / HTTP/1.1\r\n" + ok + "X: a\x00b\r\n" + auth + "\r\n",
		"folded line":               "GET / HTTP/1.1\r\n" + ok + "X: a\r\n b\r\n" + auth + "\r\n",
		"space before colon":        "GET / HTTP/1.1\r\n" + ok + "Authorization : @\r\n\r\n",
		"tab in request line":       "GET\t/ HTTP/1.1\r\n" + ok + auth + "\r\n",
		"two hosts":                 "GET / HTTP/1.1\r\n" + ok + ok + auth + "\r\n",
		"no host":                   "GET / HTTP/1.1\r\n" + auth + "\r\n",
		"absolute form":             "GET https://" + apiHost + "/ HTTP/1.1\r\n" + ok + auth + "\r\n",
		"absolute form elsewhere":   "GET http://" + evilHost + "/ HTTP/1.1\r\n" + ok + auth + "\r\n",
		"CONNECT":                   "CONNECT " + apiHost + ":443 HTTP/1.1\r\n" + ok + auth + "\r\n",
		"TRACE":                     "TRACE / HTTP/1.1\r\n" + ok + auth + "\r\n",
		"length and chunked":        "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":               "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
		"the same length twice":     "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
		"length list":               "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: 5, 5\r\n\r\nabcde",
		"length +5":                 "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: +5\r\n\r\nabcde",
		"length -1":                 "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: -1\r\n\r\n",
		"length hex":                "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: 0x5\r\n\r\nabcde",
		"length overflow":           "POST / HTTP/1.1\r\n" + ok + auth + "Content-Length: 99999999999999999999\r\n\r\n",
		"chunked misspelt":          "POST / HTTP/1.1\r\n" + ok + auth + "Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n",
		"chunked doubled":           "POST / HTTP/1.1\r\n" + ok + auth + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
		"chunked twice":             "POST / HTTP/1.1\r\n" + ok + auth + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked control byte":      "POST / HTTP/1.1\r\n" + ok + auth + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"chunked on 1.0":            "POST / HTTP/1.0\r\n" + ok + auth + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"fragment in target":        "GET /#@ HTTP/1.1\r\n" + ok + auth + "\r\n",
		"HTTP/0.9":                  "GET /\r\n",
		"HTTP/2 preface":            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"lower case version":        "GET / http/1.1\r\n" + ok + auth + "\r\n",
		"two spaces":                "GET  / HTTP/1.1\r\n" + ok + auth + "\r\n",
		"leading empty line":        "\r\nGET / HTTP/1.1\r\n" + ok + auth + "\r\n",
		"64 KiB head":               "GET / HTTP/1.1\r\n" + ok + "X: " + strings.Repeat("a", 70<<10) + "\r\n" + auth + "\r\n",
		"trailer names Host":        "POST / HTTP/1.1\r\n" + ok + auth + "Transfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n0\r\nHost: x\r\n\r\n",
		"trailer names credentials": "POST / HTTP/1.1\r\n" + ok + auth + "Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n0\r\n\r\n",
		"unknown expectation":       "GET / HTTP/1.1\r\n" + ok + auth + "Expect: a-miracle\r\n\r\n",
		"not HTTP at all":           "\x00\x01\x02\x03\r\n\r\n",
	}
}

func TestI9_AmbiguousRequestsGetNoValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
	for name, raw := range rawRequests() {
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		if _, err := io.WriteString(c, strings.ReplaceAll(raw, "@", w.placeholder())); err != nil && name != "64 KiB head" {
			t.Errorf("%s: %v", name, err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: no answer: %v", name, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var refused refusalBody
		if resp.StatusCode < 400 || resp.StatusCode > 431 || json.Unmarshal(body, &refused) != nil {
			t.Errorf("%s: status %d: %s", name, resp.StatusCode, body)
		}
		_ = c.Close()
	}
	if got := w.api.bytes() + w.evil.bytes(); got != "" {
		t.Errorf("servers got %q", got)
	}
}

func TestI9_ChunkTricksSmuggleNothing(t *testing.T) {
	t.Parallel()
	head := "POST / HTTP/1.1\r\nHost: " + apiHost + "\r\nAuthorization: @\r\nTransfer-Encoding: chunked\r\n\r\n"
	for name, body := range map[string]string{
		"extension with LF":  "5;a\nGET /evil HTTP/1.1\r\nabcde\r\n0\r\n\r\n",
		"bare LF after size": "5\nabcde\r\n0\r\n\r\n",
		"size with 0x":       "0x5\r\nabcde\r\n0\r\n\r\n",
		"size with sign":     "+5\r\nabcde\r\n0\r\n\r\n",
		"chunk too long":     "3\r\nabcdeGET /evil HTTP/1.1\r\n\r\n0\r\n\r\n",
		"size overflow":      "ffffffffffffffff5\r\nabcde\r\n0\r\n\r\n",
		"trailer folded":     "0\r\nX: a\r\n b\r\n\r\n",
	} {
		w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
		c := w.tlsConn(apiHost, apiAddr, "http/1.1")
		if _, err := io.WriteString(c, strings.ReplaceAll(head, "@", w.placeholder())+body+"GET /evil HTTP/1.1\r\nHost: "+apiHost+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err == nil && resp.StatusCode == http.StatusOK {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
		if strings.Contains(w.api.bytes(), "GET ") {
			t.Errorf("%s: the server got a second request: %q", name, w.api.bytes())
		}
	}
}

func TestPipelinedRequestsAreEachJudged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo)
	c := w.tlsConn(apiHost, apiAddr, "http/1.1")
	head := " HTTP/1.1\r\nHost: " + apiHost + "\r\n"
	if _, err := io.WriteString(c, "POST /a"+head+"Content-Length: 3\r\n\r\nabc"+"GET /forbidden"+head+"\r\n"+"GET /b"+head+"\r\n"); err != nil {
		t.Fatal(err)
	}
	br := bufio.NewReader(c)
	for _, want := range []int{http.StatusOK, http.StatusForbidden, http.StatusOK} {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("waiting for %d: %v", want, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("status %d, want %d", resp.StatusCode, want)
		}
	}
}

func TestPlainHTTPNeverCarriesAValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, echo, withSecret(secretIn(t, header("Authorization"))))
	c := w.pipe(flow(apiHost, netip.AddrPortFrom(apiAddr.Addr(), 80)), true)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+apiHost+"\r\nAuthorization: "+w.placeholder()+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(string(body), "secret_plain_http") {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}
