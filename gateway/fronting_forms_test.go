package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msb-project/msb/gateway/gatewaytest"
)

// Each text asks for a host that is denied, in a way that some servers read so, on a connection to one that isn't.
// A server that reads requests leniently must not see the denied host of any of them.
func TestI7_NoFormOfARequestFrontsADeniedHost(t *testing.T) {
	t.Parallel()
	const end, good = "\r\n\r\n", "GET / HTTP/1.1\r\nHost: www.example.com\r\n"
	evil := "GET /evil HTTP/1.1\r\nHost: evil.example.com" + end
	forms := map[string]string{
		"Host":                    evil,
		"pipelined":               good + "\r\n" + evil,
		"absolute target":         "GET https://evil.example.com/evil HTTP/1.1\r\nHost: www.example.com" + end,
		"absolute target, http":   "GET http://evil.example.com/evil HTTP/1.1\r\nHost: www.example.com" + end,
		"userinfo in the target":  "GET https://www.example.com@evil.example.com/evil HTTP/1.1\r\nHost: www.example.com" + end,
		"userinfo in Host":        "GET /evil HTTP/1.1\r\nHost: www.example.com@evil.example.com" + end,
		"Host twice":              good + "Host: evil.example.com" + end,
		"Host twice, turned":      "GET /evil HTTP/1.1\r\nHost: evil.example.com\r\nHost: www.example.com" + end,
		"a list":                  "GET /evil HTTP/1.1\r\nHost: www.example.com, evil.example.com" + end,
		"folded":                  "GET /evil HTTP/1.1\r\nHost: www.example.com\r\n evil.example.com" + end,
		"folded first":            "GET /evil HTTP/1.1\r\n Host: evil.example.com\r\nHost: www.example.com" + end,
		"blank before the colon":  good + "Host : evil.example.com" + end,
		"bare line feed":          good + "X: y\nHost: evil.example.com" + end,
		"bare carriage return":    good + "X: y\rHost: evil.example.com" + end,
		"NUL":                     "GET /evil HTTP/1.1\r\nHost: evil.example.com\x00.www.example.com" + end,
		"dot, port and case":      "GET /evil HTTP/1.1\r\nHost: EVIL.example.com.:443" + end,
		"percent":                 "GET /evil HTTP/1.1\r\nHost: %65vil.example.com" + end,
		"full-width dots":         "GET /evil HTTP/1.1\r\nHost: evil\uff0eexample\uff0ecom" + end,
		"full-width letters":      "GET /evil HTTP/1.1\r\nHost: \uff45vil.example.com" + end,
		"no host":                 "GET /evil HTTP/1.0" + end,
		"an empty host":           "GET /evil HTTP/1.1\r\nHost:" + end,
		"CONNECT":                 "CONNECT evil.example.com:443 HTTP/1.1\r\nHost: www.example.com" + end + evil,
		"length and chunks":       "POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 4\r\nTransfer-Encoding: chunked" + end + "0\r\n\r\n" + evil,
		"two lengths":             "POST / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 0\r\nContent-Length: 5" + end + evil,
		"chunks of another name":  "POST / HTTP/1.1\r\nHost: www.example.com\r\nTransfer-Encoding: xchunked" + end + "0\r\n\r\n" + evil,
		"a body that nobody ends": "GET / HTTP/1.1\r\nHost: www.example.com\r\nContent-Length: 1" + end + evil,
		"h2c":                     good + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__" + end + evil,
		"h2 without ALPN":         "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + evil,
	}
	for name, text := range forms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if seen := frontForm(t, allowWWW+denyEvil, text); seen {
				t.Error("the server was asked for the denied host")
			}
		})
	}
	t.Run("uninspected (twin)", func(t *testing.T) {
		t.Parallel()
		if !frontForm(t, allowWWW+denyEvil+"[tls]\ninspect = \"none\"\n", evil) {
			t.Error("uninspected, the server is not asked for the denied host: this test shows nothing")
		}
	})
}

// frontForm sends text on a connection to www.example.com and reports whether its server was asked for the other host.
func frontForm(t *testing.T, policy, text string) bool {
	t.Helper()
	w := gatewaytest.Start(t, policy)
	w.Record(strings.Split(frontNames, "\n")...)
	var seen atomic.Bool
	w.ServeHTTPS(site+":443", w.CA.Certificate("www.example.com"), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		said := strings.ToLower(r.Host + " " + r.URL.Host)
		if strings.Contains(said, "evil") || strings.Contains(said, "vil.example") || r.URL.Path == "/evil" && r.Host != "www.example.com" {
			seen.Store(true)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	}))
	w.Resolve("www.example.com", 1)
	raw, err := w.Dial(siteAddr, 443)
	if err != nil {
		t.Fatal(err)
	}
	tr, _ := w.Client().Transport.(*http.Transport)
	c := tls.Client(raw, &tls.Config{ServerName: "www.example.com", RootCAs: tr.TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12})
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, bufio.NewReader(c)) // until everything is answered
	return seen.Load()
}
